// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"

	"github.com/viplab/viplab/internal/lab/ruleset"
	"github.com/viplab/viplab/lab/netns"
)

// tableName is the name of the tables of probes.
const tableName = "viplab-trace"

// first is the priority of the chains that set the trace bit: before the defragmentation of connection tracking, which
// is at -400.
const first = -450

// probe is a base chain without rules. The kernel tells of each packet with the trace bit that passes it, so one behind
// every other chain shows what that chain has changed. The first ones at a hook set the bit.
type probe struct {
	family, hook string
	priority     int
}

func (p probe) chain() string {
	return strings.ReplaceAll(fmt.Sprintf("%s_%d", p.hook, p.priority), "-", "m")
}

// starts are the hooks where packets begin their walk through a namespace.
var starts = []string{"prerouting", "output"}

// translation is where connection tracking translates packets of flows that it knows, without asking a chain
// (NF_IP_PRI_NAT_DST and NF_IP_PRI_NAT_SRC). Nothing does so at forward.
var translation = map[string]int{"prerouting": -100, "input": 100, "output": -100, "postrouting": 100}

// probesFor returns the probes around the chains of a ruleset that packets of a family pass.
func probesFor(rules *ruleset.Ruleset, family string) []probe {
	probes := []probe{{"bridge", "prerouting", first}}
	for _, hook := range []string{"prerouting", "input", "forward", "output", "postrouting"} {
		at := []int{first, translation[hook] + 1}
		for _, s := range rules.At(hook, family) {
			if s.Priority < 1<<30 {
				at = append(at, s.Priority+1)
			}
		}
		slices.Sort(at)
		for _, p := range slices.Compact(at) {
			probes = append(probes, probe{"inet", hook, p})
		}
	}
	return probes
}

// Select says which packets to trace.
type Select struct {
	Proto string // "tcp", "udp", "icmp" or "icmpv6"
	Reply bool   // the packets that answer, too
	// Sources are the addresses that the packets may come from, before and after translation. Empty means all. Others
	// that share the nodes are then kept from the trace by the kernel, not only by what is told apart later.
	Sources []netip.Addr
}

// from returns an nftables expression of packets with one of the sources, or, of answers, with one as the destination.
func (s Select) from(side string) string {
	if len(s.Sources) == 0 {
		return ""
	}
	protocol := "ip"
	if s.Sources[0].Is6() {
		protocol = "ip6"
	}
	var texts []string
	for _, a := range s.Sources {
		texts = append(texts, a.String())
	}
	return fmt.Sprintf("%s %s { %s } ", protocol, side, strings.Join(texts, ", "))
}

// matches returns nftables expressions of the packets.
func (s Select) matches() []string {
	switch s.Proto {
	case "tcp":
		matches := []string{s.from("saddr") + "tcp flags & (fin | syn | rst | ack) == syn"}
		if s.Reply {
			matches = append(matches, s.from("daddr")+"tcp flags & (fin | syn | rst | ack) == syn | ack",
				s.from("daddr")+"tcp flags & rst == rst")
		}
		return matches
	case "udp":
		return []string{s.from("saddr") + "meta l4proto udp"}
	}
	return []string{s.from("saddr") + "meta l4proto { icmp, icmpv6 }"}
}

// script returns what makes the probes.
func script(probes []probe, s Select) string {
	var b strings.Builder
	for _, family := range []string{"inet", "bridge"} {
		fmt.Fprintf(&b, "table %s %s {\n", family, tableName)
		for _, p := range probes {
			if p.family != family {
				continue
			}
			fmt.Fprintf(&b, "chain %s { type filter hook %s priority %d; policy accept;\n", p.chain(), p.hook, p.priority)
			if p.priority == first && slices.Contains(starts, p.hook) {
				for _, m := range s.matches() {
					fmt.Fprintf(&b, "%s meta nftrace set 1\n", m)
				}
			}
			b.WriteString("}\n")
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// removal removes the probes. It succeeds if there are none.
func removal() string {
	var b strings.Builder
	for _, family := range []string{"inet", "bridge"} {
		fmt.Fprintf(&b, "table %s %s\ndelete table %s %s\n", family, tableName, family, tableName)
	}
	return b.String()
}

// nft runs a script in a namespace.
func nft(ctx context.Context, ns *netns.NS, text string) error {
	var complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin, cmd.Stderr = strings.NewReader(text), &complaint
	if err := ns.Run(cmd); err != nil {
		return fmt.Errorf("%s: nft: %w: %s", ns.Name(), err, bytes.TrimSpace(complaint.Bytes()))
	}
	return nil
}
