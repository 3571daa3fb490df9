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

// looks are commands that show what a proxier may leave in a node. Their output never changes by itself.
var looks = []string{
	"iptables-legacy-save", "ip6tables-legacy-save", "ipset list -name", "cat /proc/net/ip_vs",
	"ip -o link", "ip -o addr", "ip rule", "ip -6 rule", "ip route show table all", "ip -6 route show table all",
	"ss -Hlntu", "grep -rs --exclude=nf_conntrack_count . /proc/sys/net",
}

// Holdings returns all rules, IP sets, virtual servers, devices, addresses, routes, listening sockets and sysctls of a
// node, a line each. It leaves out the built-in chains of iptables if they are empty and accept everything.
func Holdings(t testing.TB, n *lab.Node) []string {
	t.Helper()
	all := nftHoldings(t, n)
	for _, look := range looks {
		out := show(t, n, look)
		for line := range strings.Lines(out) {
			if !idle.MatchString(line) {
				all = append(all, look+": "+strings.TrimSpace(line))
			}
		}
	}
	slices.Sort(all)
	return all
}

// idle matches lines without meaning. Those of iptables-save are comments, tables, and built-in chains that accept. The
// head of /proc/net/ip_vs has the size of the kernel's tables, which Linux 7.3 makes when the first server comes.
var idle = regexp.MustCompile(`^(#|\*|COMMIT|:.* ACCEPT \[|IP Virtual Server version )`)

// show runs a command in the node, and returns nothing if the command or its kernel feature does not exist.
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

// Difference returns the lines that only one of two sorted lists has: "-" for the first, "+" for the second.
func Difference(a, b []string) string {
	var out strings.Builder
	only := func(mark string, these, those []string) {
		for _, l := range these {
			if _, both := slices.BinarySearch(those, l); !both {
				out.WriteString(mark + l + "\n")
			}
		}
	}
	only("- ", a, b)
	only("+ ", b, a)
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
