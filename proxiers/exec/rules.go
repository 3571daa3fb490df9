// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"bytes"
	"context"
	"fmt"
	"io"
	osexec "os/exec"
	"strings"
)

// ruleDumps are the commands that print the rules of a node: of both back ends of iptables, of nftables, IP sets and
// IPVS.
var ruleDumps = [][]string{
	{"iptables-nft-save", "-c"}, {"ip6tables-nft-save", "-c"}, {"iptables-legacy-save", "-c"},
	{"ip6tables-legacy-save", "-c"}, {"nft", "-a", "list", "ruleset"}, {"ipset", "save"}, {"ipvsadm", "-Sn"},
}

// dumpRules writes what each of the commands prints in the node, and names those that print nothing.
func (i *instance) dumpRules(ctx context.Context, w io.Writer) error {
	var b bytes.Buffer
	var empty []string
	for _, argv := range ruleDumps {
		line := strings.Join(argv, " ")
		text, err := i.output(ctx, argv)
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

// output runs a command in the node and returns what it prints. An error is a line.
func (i *instance) output(ctx context.Context, argv []string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := osexec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := i.node.Host.Run(cmd); err != nil {
		return "", fmt.Errorf("%w: %s", err, strings.Join(strings.Fields(stderr.String()), " "))
	}
	return strings.TrimSpace(stdout.String()), nil
}
