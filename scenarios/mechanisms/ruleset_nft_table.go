// SPDX-License-Identifier: Apache-2.0

package mechanisms

import (
	"context"
	"regexp"
	"strings"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// nftTable is the table of an nftables proxier in one family, as nft lists it: what stands between the braces of each
// chain, set and map.
type nftTable map[string]string

func listNFT(ctx context.Context, w spec.World, node string, family lab.Family) (nftTable, error) {
	ip := map[lab.Family]string{lab.V4: "ip", lab.V6: "ip6"}[family]
	text, err := fixture.Shown(ctx, w, node, "nft", "list", "table", ip, "kube-proxy")
	if err != nil {
		return nil, err
	}
	return parseNFT(text), nil
}

// block begins with "chain services {" on a line of its own, and ends with a brace below it.
var nftBlock = regexp.MustCompile(`(?ms)^\t(\w+ \S+) \{\n(.*?)^\t\}$`)

func parseNFT(text string) nftTable {
	t := nftTable{}
	for _, m := range nftBlock.FindAllStringSubmatch(text, -1) {
		t[m[1]] = m[2]
	}
	return t
}

// block is what a chain, set or map consists of; empty if there is none.
func (t nftTable) block(kind, name string) string { return t[kind+" "+name] }

func (t nftTable) setOrMap(name string) string { return t.block("set", name) + t.block("map", name) }

// typeOf is the type of a set or map.
func (t nftTable) typeOf(name string) string {
	_, after, _ := strings.Cut(t.setOrMap(name), "\ttype ")
	kind, _, _ := strings.Cut(after, "\n")
	return kind
}

var (
	nftElements = regexp.MustCompile(`(?s)elements = \{ (.*) \}`)
	nftComment  = regexp.MustCompile(` comment "[^"]*"`)
)

// elements are those of a set or map, with what they lead to.
func (t nftTable) elements(name string) map[string]string {
	m := nftElements.FindStringSubmatch(t.setOrMap(name))
	if m == nil {
		return nil
	}
	all := map[string]string{}
	for _, e := range strings.Split(nftComment.ReplaceAllString(m[1], ""), ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(e), " : ")
		all[key] = value
	}
	return all
}
