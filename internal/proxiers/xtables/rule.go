// SPDX-License-Identifier: Apache-2.0

// Package xtables drives the iptables programs: it builds rules from typed parts, reads what a table holds, and
// replaces parts of tables in transactions (iptables-restore --noflush). Both back ends are run by their explicit
// names, never by the one the system happens to prefer.
package xtables

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/lab/iptablessave"
)

// Rule is a rule as iptables-restore reads it, without "-A CHAIN".
type Rule = iptablessave.Rule

// Part is a match or the target of a rule.
type Part string

// NewRule joins the parts of a rule. It ignores empty ones.
func NewRule(parts ...Part) Rule {
	var b strings.Builder
	for _, p := range parts {
		if p != "" && b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(string(p))
	}
	return Rule(b.String())
}

// Comment is a comment. A rule with nothing else only counts packets.
func Comment(text string) Part { return Part("-m comment --comment " + quote(text)) }

// quote quotes a word for iptables-restore.
func quote(word string) string {
	if word != "" && !strings.ContainsAny(word, " \t\"'\\") {
		return word
	}
	return `"` + escaper.Replace(word) + `"`
}

var escaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// To matches the destination address, protocol and port.
func To(a netip.Addr, proto corev1.Protocol, port uint16) Part {
	return Protocol(proto) + " " + ToRange(a) + Part(" --dport "+strconv.Itoa(int(port)))
}

// ToPort matches protocol and destination port.
func ToPort(proto corev1.Protocol, port uint16) Part {
	return Protocol(proto) + Part(" --dport "+strconv.Itoa(int(port)))
}

// Protocol matches the protocol.
func Protocol(proto corev1.Protocol) Part {
	p := strings.ToLower(string(proto))
	return Part("-m " + p + " -p " + p)
}

// Matches of local addresses, whose packets the host delivers to itself.
const (
	ToLocal      Part = "-m addrtype --dst-type LOCAL"
	FromLocal    Part = "-m addrtype --src-type LOCAL"
	NotFromLocal Part = "-m addrtype ! --src-type LOCAL"
)

// InSet matches packets whose parts are an entry of an IP set. The parts are in the order of the set's type:
// "dst,dst,src" is the destination address, the protocol with the destination port, and the source address.
func InSet(set, parts string) Part { return Part("-m set --match-set " + set + " " + parts) }

// ToRange matches destinations inside a range: a netip.Addr or a netip.Prefix.
func ToRange(r fmt.Stringer) Part { return Part("-d " + r.String()) }

// NotTo matches destinations outside a range.
func NotTo(r fmt.Stringer) Part { return Part("! -d " + r.String()) }

// From matches sources inside a range.
func From(r fmt.Stringer) Part { return Part("-s " + r.String()) }

// NotFrom matches sources outside a range.
func NotFrom(r fmt.Stringer) Part { return Part("! -s " + r.String()) }

// State matches the comma-separated connection tracking states.
func State(states string) Part { return Part("-m conntrack --ctstate " + states) }

// NotState matches all other connection tracking states.
func NotState(states string) Part { return Part("-m conntrack ! --ctstate " + states) }

// Marked matches packets that have all bits of the mark.
func Marked(bits uint32) Part { return Part(fmt.Sprintf("-m mark --mark %#x/%#x", bits, bits)) }

// NotMarked matches packets that lack a bit of the mark.
func NotMarked(bits uint32) Part { return Part(fmt.Sprintf("-m mark ! --mark %#x/%#x", bits, bits)) }

// OneIn matches one packet in n at random. The kernel keeps the probability as a 31-bit fraction.
func OneIn(n int) Part {
	return Part(fmt.Sprintf("-m statistic --mode random --probability %0.10f", 1/float64(n)))
}

// Targets.
const (
	Accept Part = "-j ACCEPT"
	Drop   Part = "-j DROP"
	Return Part = "-j RETURN"
	// Reject answers with port unreachable, which a client reads as "connection refused".
	Reject Part = "-j REJECT"
	// Masquerade rewrites the source to the address of the device that the packet leaves by. MasqueradeFully also picks
	// the source port at random, so that two simultaneous connections do not pick the same one.
	Masquerade      Part = "-j MASQUERADE"
	MasqueradeFully Part = "-j MASQUERADE --random-fully"
)

// Jump continues in a chain and comes back at its end.
func Jump(chain string) Part { return Part("-j " + chain) }

// Goto continues in a chain, and at its end comes back to where the present chain was entered from.
func Goto(chain string) Part { return Part("-g " + chain) }

// Remember puts the source into an IP set of addresses, or starts its timeout there anew. The packet goes on with the
// next rule.
func Remember(set string) Part { return Part("-j SET --add-set " + set + " src --exist") }

// SetMark sets the bits of the mark.
func SetMark(bits uint32) Part { return Part(fmt.Sprintf("-j MARK --or-mark %#x", bits)) }

// ClearMark clears the bits of the mark.
func ClearMark(bits uint32) Part { return Part(fmt.Sprintf("-j MARK --and-mark %#x", ^bits)) }

// DNAT rewrites the destination.
func DNAT(to netip.AddrPort) Part { return Part("-j DNAT --to-destination " + to.String()) }
