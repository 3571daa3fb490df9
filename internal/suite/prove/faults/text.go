// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
)

// Tool is a family of programs that read rules from their standard input.
type Tool string

// The tools.
const (
	XTables Tool = "iptables" // iptables-restore and ip6tables-restore of both back ends
	NFT     Tool = "nft"      // nft -f -
	IPSet   Tool = "ipset"    // ipset restore
)

// programs are the names under which tools are run.
var programs = map[string]Tool{
	"iptables-restore": XTables, "iptables-nft-restore": XTables, "iptables-legacy-restore": XTables,
	"ip6tables-restore": XTables, "ip6tables-nft-restore": XTables, "ip6tables-legacy-restore": XTables,
	"nft": NFT, "ipset": IPSet,
}

// Rewrite changes lines of a tool's input.
type Rewrite struct {
	Tool Tool
	// Line is a regular expression for the lines that are changed.
	Line string
	// To replaces each match of the expression; $1 is its first group. A line that becomes empty is removed.
	To string
}

func (r Rewrite) pattern() (*regexp.Regexp, error) {
	p, err := regexp.Compile(r.Line)
	if err != nil {
		return nil, fmt.Errorf("rewrite of %s: %w", r.Tool, err)
	}
	return p, nil
}

// rewrite returns the input of a tool after all rewrites for it, and the number of changed lines.
func rewrite(all []Rewrite, tool Tool, input []byte) (output []byte, changed int, err error) {
	for _, r := range all {
		if r.Tool != tool {
			continue
		}
		pattern, err := r.pattern()
		if err != nil {
			return nil, 0, err
		}
		var b bytes.Buffer
		for line := range strings.Lines(string(input)) {
			body := strings.TrimSuffix(line, "\n")
			if !pattern.MatchString(body) {
				b.WriteString(line)
				continue
			}
			changed++
			if body = pattern.ReplaceAllString(body, r.To); body != "" {
				b.WriteString(body + "\n")
			}
		}
		input = b.Bytes()
	}
	return input, changed, nil
}
