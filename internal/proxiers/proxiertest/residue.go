// SPDX-License-Identifier: Apache-2.0

package proxiertest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/viplab/viplab/lab"
)

// looks are commands that show what a proxier may leave in a node, and of which nothing changes by itself.
var looks = []string{
	"iptables-legacy-save", "ip6tables-legacy-save", "ipset list -name", "cat /proc/net/ip_vs",
	"ip -o link", "ip -o addr", "ip rule", "ip -6 rule", "ip route show table all", "ip -6 route show table all",
	"ss -Hlntu", "grep -rs --exclude=nf_conntrack_count . /proc/sys/net",
}

// Holdings is all that a node holds of rules of either kind, IP sets, virtual servers, devices, addresses, routes,
// listening sockets and settings of the kernel, a line each. What is there without meaning anything is left out: the
// built-in chains of iptables, if they are empty and accept everything.
func Holdings(t testing.TB, n *lab.Node) []string {
	t.Helper()
	all := nftHoldings(t, n)
	for _, look := range looks {
		out := show(t, n, look)
		for line := range strings.Lines(out) {
			if !idle(line) {
				all = append(all, look+": "+strings.TrimSpace(line))
			}
		}
	}
	slices.Sort(all)
	return all
}

// idle says whether a line of iptables-save says nothing: remarks, tables, and chains that are built in and accept.
func idle(line string) bool {
	for _, begin := range []string{"#", "*", "COMMIT"} {
		if strings.HasPrefix(line, begin) {
			return true
		}
	}
	return strings.HasPrefix(line, ":") && strings.Contains(line, " ACCEPT [")
}

// show runs a command in the node. What this kernel or machine does not have holds nothing.
func show(t testing.TB, n *lab.Node, command string) string {
	t.Helper()
	words := strings.Fields(command)
	if _, err := exec.LookPath(words[0]); err != nil {
		return ""
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
	cmd.Stdout = &out
	_ = n.Run(cmd)
	return out.String()
}

// Difference is what two sorted lists do not have in common: "-" for a line of the first alone, "+" for one of the
// second.
func Difference(a, b []string) string {
	var out strings.Builder
	for _, l := range a {
		if _, both := slices.BinarySearch(b, l); !both {
			out.WriteString("- " + l + "\n")
		}
	}
	for _, l := range b {
		if _, both := slices.BinarySearch(a, l); !both {
			out.WriteString("+ " + l + "\n")
		}
	}
	return out.String()
}

// counted is how many packets have come by a rule.
var counted = regexp.MustCompile(`bytes:\d+ packets:\d+`)

// nftHoldings is the ruleset of nf_tables. Tables are told by what is in them.
func nftHoldings(t testing.TB, n *lab.Node) []string {
	t.Helper()
	var list struct {
		All []map[string]map[string]any `json:"nftables"`
	}
	text := show(t, n, "nft -j list ruleset")
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatalf("nft -j list ruleset: %v: %s", err, text)
	}
	var all []string
	for _, object := range list.All {
		for kind, about := range object {
			if kind == "metainfo" || kind == "table" || kind == "chain" && about["policy"] == "accept" {
				continue
			}
			delete(about, "handle")
			if elements, ok := about["elem"].([]any); ok { // the kernel lists them as its hash table has them
				slices.SortFunc(elements, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
			}
			all = append(all, counted.ReplaceAllString(fmt.Sprintf("nft: %s %v", kind, about), ""))
		}
	}
	return all
}
