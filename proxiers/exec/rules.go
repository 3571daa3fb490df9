// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"bytes"
	"context"
	"fmt"
	"io"
	osexec "os/exec"
	"strings"

	"github.com/viplab/viplab/internal/lab/iptablessave"
	"github.com/viplab/viplab/internal/lab/program"
)

// ruleDump is a command that prints rules of a node.
type ruleDump struct {
	argv []string
	file string // in /proc/net; if it is missing or empty, there are no such rules
}

// ruleDumps are the commands that print the rules of a node: of both back ends of iptables, of nftables, IP sets and
// IPVS.
var ruleDumps = []ruleDump{
	{argv: []string{"iptables-nft-save", "-c"}}, {argv: []string{"ip6tables-nft-save", "-c"}},
	{argv: []string{"iptables-legacy-save", "-c"}, file: iptablessave.LegacyTables("ip")},
	{argv: []string{"ip6tables-legacy-save", "-c"}, file: iptablessave.LegacyTables("ip6")},
	{argv: []string{"nft", "-a", "list", "ruleset"}}, {argv: []string{"ipset", "save"}},
	{argv: []string{"ipvsadm", "-Sn"}, file: "ip_vs"},
}

// dumpRules writes what each of the commands prints in the node, and names those that print nothing.
func (i *instance) dumpRules(ctx context.Context, w io.Writer) error {
	var b bytes.Buffer
	var empty []string
	for _, d := range ruleDumps {
		line := strings.Join(d.argv, " ")
		text, err := i.dumped(ctx, d)
		switch {
		case err != nil:
			fmt.Fprintf(&b, "\n# %s\n# not available: %v\n", line, err)
		case text == "":
			empty = append(empty, line)
		default:
			fmt.Fprintf(&b, "\n# %s\n%s\n", line, text)
		}
	}
	if len(empty) > 0 {
		fmt.Fprintf(&b, "\n# no rules: %s\n", strings.Join(empty, ", "))
	}
	_, err := b.WriteTo(w)
	return err
}

// dumped returns the rules that a command prints. It does not start the command if there are none.
func (i *instance) dumped(ctx context.Context, d ruleDump) (string, error) {
	if d.file != "" {
		if text, err := i.node.Host.ProcNet(d.file); err == nil && text == "" {
			return "", nil
		}
	}
	return i.output(ctx, d.argv)
}

// output runs a command in the node and returns what it prints. An error is a line.
func (i *instance) output(ctx context.Context, argv []string) (string, error) {
	text, err := program.Output(osexec.CommandContext(ctx, argv[0], argv[1:]...), i.node.Host.Run)
	return strings.TrimSpace(text), err
}
