// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/viplab/viplab/internal/proxiers/nft"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/suite/spec"
)

// Backend is the kernel interface that the programs use.
type Backend string

// The back ends. Their rules live in worlds of their own, and both may be in force at once.
const (
	NFTables Backend = "nft"
	Legacy   Backend = "legacy"
)

// Programs are the save and restore programs of a back end and family, for one namespace.
type Programs struct {
	ns            *netns.NS
	backend       Backend
	family        lab.Family
	save, restore string
	lock          string
}

// Find looks the programs up. A missing one is a *spec.UnusableError. lock is a file that programs of the same
// namespace share, so that those of another namespace never wait for them; only the legacy back end uses it.
func Find(ns *netns.NS, b Backend, f lab.Family, lock string) (*Programs, error) {
	base := "iptables-"
	if f == lab.V6 {
		base = "ip6tables-"
	}
	save, err := lookUp(base + string(b) + "-save")
	if err != nil {
		return nil, err
	}
	restore, err := lookUp(base + string(b) + "-restore")
	if err != nil {
		return nil, err
	}
	return &Programs{ns: ns, backend: b, family: f, save: save, restore: restore, lock: lock}, nil
}

// lookUp finds a program also where the PATH of an unprivileged shell does not lead.
func lookUp(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", &spec.UnusableError{Missing: "the program " + name, Cure: "apt-get install iptables"}
}

// Save reads all tables in one go. If there is no table, it starts no program.
func (p *Programs) Save(ctx context.Context) (Tables, error) {
	names, err := p.tables()
	if err == nil && !slices.ContainsFunc(names, isTable) {
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
		return nft.Tables(p.ns, p.family)
	}
	file := "/proc/thread-self/net/ip_tables_names"
	if p.family == lab.V6 {
		file = "/proc/thread-self/net/ip6_tables_names"
	}
	var names []byte
	err := p.ns.Do(func() (err error) {
		names, err = os.ReadFile(file)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) { // the kernel module that holds tables is not loaded
		return nil, nil
	}
	return strings.Fields(string(names)), err
}

// isTable reports whether iptables has a table of that name.
func isTable(name string) bool {
	return slices.Contains([]string{"filter", "nat", "mangle", "raw", "security"}, name)
}

// SaveText reads a table as the program prints it.
func (p *Programs) SaveText(ctx context.Context, table TableName) ([]byte, error) {
	return p.read(ctx, "-t", string(table))
}

// read runs the save program. It asks for the names of sets after it has asked for the rules that look into them; where
// somebody else removes a rule and its set in between, it gives up, and is to be run again.
func (p *Programs) read(ctx context.Context, args ...string) ([]byte, error) {
	for {
		out, err := p.run(ctx, nil, p.save, args...)
		if err == nil || ctx.Err() != nil || !setGone.MatchString(err.Error()) {
			return out, err
		}
	}
}

// setGone is the complaint about a set that was removed (get_set_byid in libxt_set.h of iptables).
var setGone = regexp.MustCompile(`Set with index \d+ in kernel doesn't exist`)

// Restore carries out transactions. After an error it is unknown which of them happened.
func (p *Programs) Restore(ctx context.Context, all ...*Transaction) error {
	script := Script(all...)
	if len(script) == 0 {
		return nil
	}
	_, err := p.run(ctx, script, p.restore, "--noflush", "--counters", "-w", "5")
	if err != nil {
		return fmt.Errorf("%w%s", err, culprit(err, script))
	}
	return nil
}

// run runs a program in the namespace and returns its output.
func (p *Programs) run(ctx context.Context, input []byte, path string, args ...string) ([]byte, error) {
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "XTABLES_LOCKFILE="+p.lock)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &complaint
	if err := p.ns.Run(cmd); err != nil {
		return nil, fmt.Errorf("%s: %s %s: %w: %s", p.ns.Name(), filepath.Base(path), strings.Join(args, " "), err,
			strings.TrimSpace(complaint.String()))
	}
	return out.Bytes(), nil
}

// culprit quotes the line of the script that the program complains about.
func culprit(err error, script []byte) string {
	_, after, ok := strings.Cut(err.Error(), "line")
	if !ok {
		return ""
	}
	n := 0
	if _, err := fmt.Sscanf(strings.TrimLeft(after, " :"), "%d", &n); err != nil {
		return ""
	}
	lines := bytes.Split(script, []byte("\n"))
	if n < 1 || n > len(lines) {
		return ""
	}
	return fmt.Sprintf(" (line %d: %s)", n, lines[n-1])
}
