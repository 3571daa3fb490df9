// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"bytes"
	"context"
	"fmt"
	"io"
	osexec "os/exec"
	"regexp"
	"strings"

	"github.com/viplab/viplab/internal/lab/iptablessave"
	"github.com/viplab/viplab/internal/lab/program"
)

// ruleDump is a command that prints rules of a node.
type ruleDump struct {
	argv  []string
	file  string         // in /proc/net; if it is missing or empty, there are no such rules
	among *regexp.Regexp // in the output of the first command; if nothing matches, there are no such rules
}

// ruleDumps are the commands that print the rules of a node: of nftables, of both back ends of iptables, IP sets and
// IPVS.
var ruleDumps = []ruleDump{
	{argv: []string{"nft", "-a", "list", "ruleset"}},
	{argv: []string{"iptables-nft-save", "-c"}, among: tablesOf("ip")},
	{argv: []string{"ip6tables-nft-save", "-c"}, among: tablesOf("ip6")},
	{argv: []string{"iptables-legacy-save", "-c"}, file: iptablessave.LegacyTables("ip")},
	{argv: []string{"ip6tables-legacy-save", "-c"}, file: iptablessave.LegacyTables("ip6")},
	{argv: []string{"ipset", "save"}},
	{argv: []string{"ipvsadm", "-Sn"}, file: "ip_vs"},
}

// tablesOf returns what nft prints of the tables of iptables-nft.
func tablesOf(family string) *regexp.Regexp {
	return regexp.MustCompile(`(?m)^table ` + family + ` (raw|mangle|nat|filter|security) `)
}

// dumpRules writes what each of the commands prints in the node, and names those that print nothing.
func (i *instance) dumpRules(ctx context.Context, w io.Writer) error {
	var b bytes.Buffer
	var empty []string
	var nft string // the output of the first command, or empty if it failed
	for n, d := range ruleDumps {
		line := strings.Join(d.argv, " ")
		text, err := i.dumped(ctx, d, nft)
		if n == 0 && err == nil {
			nft = text
		}
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

// dumped returns the rules that a command prints. It does not start the command if there are none, as the output of nft
// may show.
func (i *instance) dumped(ctx context.Context, d ruleDump, nft string) (string, error) {
	if d.among != nil && nft != "" && !d.among.MatchString(nft) {
		return "", nil
	}
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
