// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/viplab/viplab/internal/lab/iptablessave"
	"github.com/viplab/viplab/internal/lab/program"
	"github.com/viplab/viplab/lab/netns"
)

// saver is a program that prints the rules of iptables.
type saver struct {
	program string
	backend Backend
	family  string
}

var saves = []saver{
	{"iptables-nft-save", IptablesNFT, IP}, {"ip6tables-nft-save", IptablesNFT, IP6},
	{"iptables-legacy-save", IptablesLegacy, IP}, {"ip6tables-legacy-save", IptablesLegacy, IP6},
}

// Read returns the rules of a namespace. What this machine has no program for is left out. Tables, sets and servers are
// read one after the other: a program that changes them meanwhile can be seen half-way.
func Read(ctx context.Context, ns *netns.NS) (*Ruleset, error) {
	listed, err := readNFT(ctx, ns)
	if err != nil {
		return nil, err
	}
	all := &Ruleset{}
	saved := map[[2]string]bool{}
	for _, s := range saves {
		if !s.used(ns, listed) {
			continue
		}
		tables, err := readSaved(ctx, ns, s.program, s.backend, s.family, listed)
		if err != nil {
			return nil, err
		}
		for _, t := range tables {
			saved[[2]string{t.Family, t.Name}] = saved[[2]string{t.Family, t.Name}] || t.Backend == IptablesNFT
		}
		all.Tables = append(all.Tables, slices.DeleteFunc(tables, (*Table).idle)...)
	}
	all.Tables = append(all.Tables, slices.DeleteFunc(listed, func(t *Table) bool {
		return saved[[2]string{t.Family, t.Name}] // nft cannot print all rules of iptables
	})...)
	if text, err := output(ctx, ns, "ipset", "save"); err == nil { // a kernel may lack IP sets
		all.IPSets = parseIPSets(text)
	}
	return all, all.readProc(ns)
}

// used reports whether a namespace may have rules of the back end. It saves the start of a program that prints nothing.
func (s saver) used(ns *netns.NS, listed []*Table) bool {
	if s.backend == IptablesNFT {
		return slices.ContainsFunc(listed, func(t *Table) bool {
			return t.Family == s.family && iptablessave.IsTable(t.Name)
		})
	}
	names, err := ns.ProcNet(iptablessave.LegacyTables(s.family))
	return names != "" || err != nil
}

// readNFT returns the tables of nftables, those of iptables included.
func readNFT(ctx context.Context, ns *netns.NS) ([]*Table, error) {
	text, err := output(ctx, ns, "nft", "-a", "-y", "list", "ruleset")
	if err != nil {
		return nil, err
	}
	tables, err := parseNFT(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ns.Name(), err)
	}
	return tables, nil
}

// readSaved returns the tables of one back end and family, without those that its program does not understand.
func readSaved(ctx context.Context, ns *netns.NS, program string, b Backend, family string, listed []*Table) (
	[]*Table, error) {
	text, err := iptablessave.Read(ctx, func() (string, error) { return output(ctx, ns, program, "-c") })
	if err != nil {
		return nil, err
	}
	foreign := unreadable.FindAllStringSubmatch(text, -1)
	tables, err := parseSaved(b, family, text, func(table, chain string) bool {
		return b == IptablesLegacy || slices.ContainsFunc(listed, func(t *Table) bool {
			return t.Family == family && t.Name == table && t.Chain(chain) != nil
		})
	})
	return slices.DeleteFunc(tables, func(t *Table) bool {
		return slices.ContainsFunc(foreign, func(m []string) bool { return m[1] == t.Name })
	}), err
}

// idle reports whether a table of iptables does nothing.
func (t *Table) idle() bool {
	return !slices.ContainsFunc(t.Chains, func(c *Chain) bool {
		return c.Hook == "" || len(c.Rules) > 0 || c.Policy != "ACCEPT"
	})
}

// readProc reads the files of /proc/net.
func (r *Ruleset) readProc(ns *netns.NS) error {
	files := map[string]string{}
	for _, name := range []string{"ip_vs", "tcp", "tcp6", "udp", "udp6"} { // a kernel may lack IPVS
		text, err := ns.ProcNet(name)
		if err != nil {
			return err
		}
		files[name] = text
	}
	var err error
	if r.Servers, err = parseServers(files["ip_vs"]); err != nil {
		return fmt.Errorf("%s: %w", ns.Name(), err)
	}
	for _, name := range []string{"tcp", "tcp6", "udp", "udp6"} {
		sockets, err := parseSockets(strings.TrimSuffix(name, "6"), files[name])
		if err != nil {
			return fmt.Errorf("%s: %w", ns.Name(), err)
		}
		r.Sockets = append(r.Sockets, sockets...)
	}
	return nil
}

// output returns what a program prints on a node. A program that this machine lacks prints nothing.
func output(ctx context.Context, ns *netns.NS, argv ...string) (string, error) {
	text, err := program.Output(exec.CommandContext(ctx, argv[0], argv[1:]...), ns.Run)
	if errors.Is(err, exec.ErrNotFound) {
		return "", nil
	}
	if err != nil && !strings.Contains(argv[0], "legacy") { // a kernel may lack the legacy tables
		return "", fmt.Errorf("%s: %s: %w", ns.Name(), strings.Join(argv, " "), err)
	}
	return text, nil
}
