// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/viplab/viplab/internal/lab/iptablessave"
	"github.com/viplab/viplab/internal/live/control"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/proxiers"
)

// Rules prints what is programmed on a node.
const Rules = "rules" // RulesArgs, no result

// RulesArgs are the arguments of Rules.
type RulesArgs struct {
	Node string
	Raw  bool // all rulesets of the node with their counters, instead of what the programs say of theirs
}

func (l *Lab) rules(ctx context.Context, call *control.Call) (any, error) {
	var args RulesArgs
	if err := call.Args(&args); err != nil {
		return nil, err
	}
	n := l.standing.Cluster().Lab().Node(args.Node)
	if n == nil {
		return nil, fmt.Errorf("%q is not a node", args.Node)
	}
	proxier, _ := l.standing.Programs()
	if !args.Raw {
		if err := l.standing.Dump(ctx, args.Node, call.Stdout); err != nil || slices.Contains(proxiers.Names(), proxier) {
			return nil, err
		}
	}
	return nil, rulesets(ctx, n, call.Stdout)
}

// saved are the commands that print the rulesets of iptables.
var saved = []string{"iptables-nft-save", "ip6tables-nft-save", "iptables-legacy-save", "ip6tables-legacy-save"}

// rulesets writes all rulesets of a node that are not empty: those of iptables, the other nftables, the virtual servers
// and the IP sets.
func rulesets(ctx context.Context, n *lab.Node, w io.Writer) error {
	for _, program := range saved {
		text, err := iptablessave.Read(ctx, func() (string, error) { return output(ctx, n.NS, program, "-c") })
		if err != nil {
			return err
		}
		if strings.Contains(text, "] -A ") { // empty tables have policies only
			fmt.Fprintf(w, "# %s: %s -c\n%s", n.Name(), program, text)
		}
	}
	tables, err := output(ctx, n.NS, "nft", "list", "tables")
	if err != nil {
		return err
	}
	for line := range strings.Lines(tables) {
		words := strings.Fields(line) // "table ip kube-proxy"
		if len(words) != 3 || ofIptables(words[1], words[2]) {
			continue
		}
		text, err := output(ctx, n.NS, "nft", "list", "table", words[1], words[2])
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "# %s: nft list %s%s", n.Name(), line, text)
	}
	sets, err := output(ctx, n.NS, "ipset", "save")
	if err == nil && sets != "" {
		fmt.Fprintf(w, "# %s: ipset save\n%s", n.Name(), sets)
	}
	return virtualServers(n.NS, w)
}

// ofIptables reports whether a table of nftables is one that iptables-nft manages.
func ofIptables(family, table string) bool {
	return (family == "ip" || family == "ip6") &&
		slices.Contains([]string{"raw", "mangle", "nat", "filter", "security"}, table)
}

// output returns what a program prints on a node. A program that this machine lacks prints nothing.
func output(ctx context.Context, ns *netns.NS, argv ...string) (string, error) {
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err := ns.Run(cmd)
	if errors.Is(err, exec.ErrNotFound) {
		return "", nil
	}
	if err != nil && !strings.Contains(argv[0], "legacy") { // a kernel may lack the legacy tables
		return "", fmt.Errorf("%s: %s: %w: %s", ns.Name(), strings.Join(argv, " "), err, bytes.TrimSpace(complaint.Bytes()))
	}
	return out.String(), nil
}

// virtualServers writes the table of IPVS, if the kernel has it and it is not empty.
func virtualServers(ns *netns.NS, w io.Writer) error {
	var text []byte
	err := ns.Do(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/ip_vs")
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	const head = 3 // lines
	if err == nil && bytes.Count(text, []byte("\n")) > head {
		_, err = fmt.Fprintf(w, "# %s: /proc/net/ip_vs\n%s", ns.Name(), text)
	}
	return err
}
