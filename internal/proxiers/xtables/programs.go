// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/viplab/viplab/internal/lab/iptablessave"
	"github.com/viplab/viplab/internal/lab/program"
	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/internal/proxiers/nfquery"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/suite/spec"
)

// Backend is the kernel interface that the programs use.
type Backend string

// The back ends. Each has rules of its own, and both may apply at once.
const (
	NFTables Backend = "nft"
	Legacy   Backend = "legacy"
)

// Programs are the save and restore programs of a back end and family, for one namespace. The restore program keeps
// running between calls, until Close. Restore and Close are not to be called concurrently.
type Programs struct {
	ns            *netns.NS
	backend       Backend
	family        lab.Family
	save, restore string
	lock          string
	restorer      *restorer // nil if none runs
}

// Find looks the programs up. A missing one is a *spec.UnusableError. dir is a directory of the namespace for the lock
// of the legacy back end, so that programs of other namespaces never wait for it.
func Find(ns *netns.NS, b Backend, f lab.Family, dir string) (*Programs, error) {
	base := "iptables-"
	if f == lab.V6 {
		base = "ip6tables-"
	}
	save, err := kit.LookUp(base+string(b)+"-save", "iptables")
	if err != nil {
		return nil, err
	}
	restore, err := kit.LookUp(base+string(b)+"-restore", "iptables")
	if err != nil {
		return nil, err
	}
	lock := filepath.Join(dir, "xtables-"+f.String()+".lock")
	return &Programs{ns: ns, backend: b, family: f, save: save, restore: restore, lock: lock}, nil
}

// Save reads all tables in one go. If there is no table, it starts no program.
func (p *Programs) Save(ctx context.Context) (Tables, error) {
	names, err := p.tables()
	if err == nil && !slices.ContainsFunc(names, iptablessave.IsTable) {
		return Tables{}, nil
	}
	out, err := p.read(ctx)
	if err != nil {
		return nil, err
	}
	return parseAllSaved(out)
}

// tables returns the names of the tables of the back end and family, and of others beside them.
func (p *Programs) tables() ([]string, error) {
	if p.backend == NFTables {
		return nfquery.Tables(p.ns, p.family)
	}
	file := iptablessave.LegacyTables("ip")
	if p.family == lab.V6 {
		file = iptablessave.LegacyTables("ip6")
	}
	names, err := p.ns.ProcNet(file) // empty if the kernel module that holds tables is not loaded
	return strings.Fields(names), err
}

// SaveText reads tables as the program prints them.
func (p *Programs) SaveText(ctx context.Context, tables ...TableName) (all []byte, err error) {
	for _, t := range tables {
		text, err := p.read(ctx, "-t", string(t))
		if err != nil {
			return nil, err
		}
		all = append(all, text...)
	}
	return all, nil
}

// read runs the save program.
func (p *Programs) read(ctx context.Context, args ...string) ([]byte, error) {
	return iptablessave.Read(ctx, func() ([]byte, error) {
		cmd := p.command(ctx, p.save, args...)
		text, err := program.Output(cmd, p.ns.Run)
		if err != nil {
			return nil, p.failure(cmd, err)
		}
		return []byte(text), nil
	})
}

// Restore carries out transactions. After an error it is unknown which of them succeeded.
func (p *Programs) Restore(ctx context.Context, all ...*Transaction) error {
	script := Script(all...)
	if len(script) == 0 {
		return nil
	}
	if p.restorer == nil {
		cmd := p.command(context.WithoutCancel(ctx), p.restore, "--noflush", "--counters", "--verbose", "-w", "5")
		r, err := startRestorer(cmd, p.ns.Start)
		if err != nil {
			return p.failure(cmd, err)
		}
		p.restorer = r
	}
	r, before := p.restorer, p.restorer.lines
	err := r.carryOut(ctx, script)
	if err != nil {
		err = fmt.Errorf("%w%s", p.failure(r.cmd, err), culprit(err, script, before))
	}
	if err != nil || r.worn() {
		p.Close()
	}
	return err
}

// Close ends the restore program, if it runs. The next Restore starts another one. When the socket of a program closes,
// most kernels wait until they have freed deleted rules (nft_rcv_nl_event of nf_tables_api.c), so that IP sets that
// they matched are rarely in use any more.
func (p *Programs) Close() {
	if p.restorer != nil {
		p.restorer.close()
		p.restorer = nil
	}
}

// command returns a command for a program of the namespace.
func (p *Programs) command(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "XTABLES_LOCKFILE="+p.lock)
	return cmd
}

func (p *Programs) failure(cmd *exec.Cmd, err error) error {
	return fmt.Errorf("%s: %s %s: %w", p.ns.Name(), filepath.Base(cmd.Path), strings.Join(cmd.Args[1:], " "), err)
}

var lineNumber = regexp.MustCompile(`line[ :]+(\d+)`)

// culprit quotes the line of the script that the program complains about. before is the number of lines that the
// program has read before the script.
func culprit(err error, script []byte, before int) string {
	match := lineNumber.FindStringSubmatch(err.Error())
	if match == nil {
		return ""
	}
	n, _ := strconv.Atoi(match[1])
	n -= before
	lines := bytes.Split(script, []byte("\n"))
	if n < 1 || n > len(lines) {
		return ""
	}
	return fmt.Sprintf(" (line %d: %s)", n, lines[n-1])
}

// Unusable turns an error of a probe into a *spec.UnusableError. what are the rules that the probe tried.
func Unusable(ctx context.Context, err error, what string) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	return &spec.UnusableError{
		Missing: "the iptables matches and targets of " + what,
		Cure:    fmt.Sprintf("load the kernel modules that the program asks for (%v)", err),
	}
}
