package nftables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"sigs.k8s.io/knftables"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/suite/spec"
)

// tableName is that of kube-proxy's table: the two could not serve one node together anyway, and people look there.
const tableName = "kube-proxy"

// table is our table of one family in a namespace.
type table struct {
	ns  *netns.NS
	ip  knftables.Family
	nft knftables.Interface
}

func openTable(ns *netns.NS, f lab.Family) (*table, error) {
	widenPath()
	if _, err := exec.LookPath("nft"); err != nil {
		return nil, &spec.UnusableError{Missing: "the program nft", Cure: "apt-get install nftables"}
	}
	t := &table{ns: ns, ip: knftables.IPv4Family}
	if f == lab.V6 {
		t.ip = knftables.IPv6Family
	}
	err := ns.Do(func() (err error) {
		t.nft, err = knftables.New(t.ip, tableName)
		return err
	})
	return t, err
}

// widenPath lets nft be found also where the PATH of an unprivileged shell does not lead; knftables looks nowhere else.
var widenPath = sync.OnceFunc(func() {
	if _, err := exec.LookPath("nft"); err == nil {
		return
	}
	path := strings.Join([]string{os.Getenv("PATH"), "/usr/sbin", "/sbin", "/usr/local/sbin"}, string(filepath.ListSeparator))
	_ = os.Setenv("PATH", path) // fails for names with = or zero bytes only
})

// run carries out a transaction, all of it or nothing.
func (t *table) run(ctx context.Context, tx *knftables.Transaction) error {
	if tx.NumOperations() == 0 {
		return nil
	}
	if err := t.ns.Do(func() error { return t.nft.Run(ctx, tx) }); err != nil {
		return fmt.Errorf("%s: nft: table %s %s: %w", t.ns.Name(), t.ip, tableName, complaint(err))
	}
	return nil
}

// holdings are the names of what the table holds, by kind: "chain", "set", "map".
func (t *table) holdings(ctx context.Context) (map[string][]string, error) {
	var all map[string][]string
	err := t.ns.Do(func() (err error) {
		all, err = t.nft.ListAll(ctx)
		return err
	})
	if knftables.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: nft: list table %s %s: %w", t.ns.Name(), t.ip, tableName, complaint(err))
	}
	return all, nil
}

// text is the table as nft prints it, empty if there is none.
func (t *table) text(ctx context.Context) ([]byte, error) {
	var out, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "nft", "list", "table", string(t.ip), tableName)
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := t.ns.Run(cmd); err != nil {
		if strings.Contains(stderr.String(), "No such file or directory") {
			return nil, nil
		}
		return nil, fmt.Errorf("%s: %s: %w: %s", t.ns.Name(), strings.Join(cmd.Args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return out.Bytes(), nil
}

// complaint is the beginning of what nft had to say: it may quote a line for each of thousands of commands.
func complaint(err error) error {
	lines := strings.SplitN(strings.TrimSpace(err.Error()), "\n", 4)
	return errors.New(strings.Join(lines[:min(len(lines), 3)], "\n"))
}
