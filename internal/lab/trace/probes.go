// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/lab/ruleset"
)

// tableName is the name of the tables of probes.
const tableName = "viplab-trace"

// first is the priority of the chains that set the trace bit: before the defragmentation of connection tracking, which
// is at -400.
const first = -450

// probe is a base chain whose verdict is always to go on. The kernel tells of each packet with the trace bit that
// passes it, so one behind every other chain shows what that chain has changed. The first ones at a hook set the bit.
type probe struct {
	hook     string
	priority int
}

func (p probe) chain() string {
	return strings.ReplaceAll(fmt.Sprintf("%s_%d", p.hook, p.priority), "-", "m")
}

// starts are the hooks where packets begin their walk through a namespace.
var starts = []string{"prerouting", "output"}

// isStart reports whether a probe is the first thing that a packet meets.
func (p probe) isStart() bool { return p.priority == first && slices.Contains(starts, p.hook) }

// translation is where connection tracking translates packets of flows that it knows, without asking a chain
// (NF_IP_PRI_NAT_DST and NF_IP_PRI_NAT_SRC). It translates the packet in an ICMP error there, too. It does nothing at
// forward.
var translation = map[string]int{"prerouting": -100, "input": 100, "output": -100, "postrouting": 100}

// hookNames are the hooks by number (enum nf_inet_hooks).
var hookNames = []string{"prerouting", "input", "forward", "output", "postrouting"}

// probesFor returns the probes around the chains of a ruleset that packets of a family pass.
func probesFor(rules *ruleset.Ruleset, family string) (probes []probe) {
	for _, hook := range hookNames {
		at := []int{translation[hook] + 1}
		if slices.Contains(starts, hook) {
			at = append(at, first)
		}
		for _, s := range rules.At(hook, family) {
			if s.Priority < 1<<30 {
				at = append(at, s.Priority+1)
			}
		}
		slices.Sort(at)
		for _, p := range slices.Compact(at) {
			probes = append(probes, probe{hook, p})
		}
	}
	return probes
}

// Select says which packets to trace. ICMP errors are traced with them.
type Select struct {
	Proto string // "tcp", "udp", "sctp" or "icmp", which means ICMPv6 for IPv6
	Reply bool   // the packets that answer, too
	// Sources are the addresses that the packets may come from, before and after translation. Empty means all. Others
	// that share the nodes are then kept from the trace by the kernel, not only by what is told apart later.
	Sources []netip.Addr
}

// The sides of a packet: where its addresses are in the headers (RFC 791 3.1, RFC 8200 3.).
type side struct{ v4, v6 uint32 }

var (
	fromSource = side{12, 8}
	toSource   = side{16, 24} // for what comes back
)

// matches returns the rules' beginnings for the packets of a family.
func (s Select) matches(family string) (all [][]expression) {
	const transport = unix.NFT_PAYLOAD_TRANSPORT_HEADER
	flags := func(mask, want byte) []expression { return isField(transport, 13, []byte{mask}, []byte{want}) }
	kind := func(offset uint32, want byte) []expression { return isField(transport, offset, nil, []byte{want}) }
	icmp, echo, answer := uint8(unix.IPPROTO_ICMP), byte(8), byte(0)
	if family == ruleset.IP6 {
		icmp, echo, answer = unix.IPPROTO_ICMPV6, 128, 129
	}
	there := func(parts ...[]expression) { all = append(all, s.on(fromSource, family, slices.Concat(parts...))...) }
	back := func(parts ...[]expression) {
		if s.Reply {
			all = append(all, s.on(toSource, family, slices.Concat(parts...))...)
		}
	}
	switch s.Proto {
	case "tcp":
		tcp := isProtocol(unix.IPPROTO_TCP)
		there(tcp, flags(flagFIN|flagSYN|flagRST|flagACK, flagSYN))
		back(tcp, flags(flagFIN|flagSYN|flagRST|flagACK, flagSYN|flagACK))
		back(tcp, flags(flagRST, flagRST))
	case "udp":
		there(isProtocol(unix.IPPROTO_UDP))
		back(isProtocol(unix.IPPROTO_UDP))
	case "sctp": // the kind of the first chunk (RFC 9260 3.2)
		sctp := isProtocol(unix.IPPROTO_SCTP)
		there(sctp, kind(12, chunkInit))
		back(sctp, kind(12, chunkInitAck))
		back(sctp, kind(12, chunkAbort))
	case "icmp":
		there(isProtocol(icmp), kind(0, echo))
		back(isProtocol(icmp), kind(0, answer))
	}
	return all
}

// errorsOf returns the rules' beginnings for ICMP errors (RFC 792, RFC 4443), those of all senders.
func errorsOf(family string) (all [][]expression) {
	icmp, kinds := uint8(unix.IPPROTO_ICMP), []byte{3, 11, 12}
	if family == ruleset.IP6 {
		icmp, kinds = unix.IPPROTO_ICMPV6, []byte{1, 2, 3, 4}
	}
	for _, k := range kinds {
		all = append(all, rule(isProtocol(icmp), isField(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, nil, []byte{k})))
	}
	return all
}

// on returns a rule for each of the sources, or one for all.
func (s Select) on(at side, family string, match []expression) (all [][]expression) {
	offset := at.v4
	if family == ruleset.IP6 {
		offset = at.v6
	}
	for _, a := range s.Sources {
		all = append(all, rule(isField(unix.NFT_PAYLOAD_NETWORK_HEADER, offset, nil, a.AsSlice()), match))
	}
	if len(s.Sources) == 0 {
		all = append(all, match)
	}
	return all
}

// The bits of the state and of the status of a connection, which are also the names of chains that packets with the bit
// are led to (NF_CT_STATE_BIT in linux/netfilter/nf_conntrack_common.h, enum ip_conntrack_status).
var (
	states = []bit{
		{"INVALID", 1}, {"NEW", 1 << 3}, {"ESTABLISHED", 1 << 1}, {"RELATED", 1 << 2}, {"UNTRACKED", 1 << 6},
	}
	statuses = []bit{{"SNAT", 1 << 4}, {"DNAT", 1 << 5}}
)

type bit struct {
	name string
	bit  uint32
}

func native(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// priorityTracking is where connection tracking begins, at prerouting and output (NF_IP_PRI_CONNTRACK).
const priorityTracking = -200

// tables returns what makes the probes. A rule that asks for the state of a connection would make the kernel track
// connections, so there are such rules only where it does so anyway.
func tables(probes []probe, s Select, family string, tracked bool) []table {
	numbers := map[string]uint8{ruleset.IP: unix.NFPROTO_IPV4, ruleset.IP6: unix.NFPROTO_IPV6}
	one := table{family: numbers[family]}
	if tracked {
		for _, b := range slices.Concat(states, statuses) {
			one.chains = append(one.chains, chain{name: b.name})
		}
	}
	selected, returned := s.matches(family), errorsOf(family)
	for _, p := range probes {
		c := chain{
			name: p.chain(), base: true, hook: uint32(slices.Index(hookNames, p.hook)), priority: p.priority,
		}
		if p.isStart() {
			for _, m := range slices.Concat(selected, returned) {
				c.rules = append(c.rules, rule(m, setTraceBit))
			}
		}
		for _, m := range returned {
			c.rules = append(c.rules, rule(m, []expression{log(ownGroup, c.name)}))
		}
		if tracked {
			c.rules = append(c.rules, p.states()...)
		}
		one.chains = append(one.chains, c)
	}
	bridge := chain{name: probe{"prerouting", first}.chain(), base: true, priority: first}
	for _, m := range slices.Concat(selected, returned) {
		bridge.rules = append(bridge.rules, rule(m, setTraceBit))
	}
	return []table{one, {family: unix.NFPROTO_BRIDGE, chains: []chain{bridge}}}
}

// states returns rules that lead a packet to the chain with the name of its state.
func (p probe) states() (rules [][]expression) {
	for _, b := range statuses {
		rules = append(rules, rule(hasBit(unix.NFT_CT_STATUS, b.bit), []expression{lead(unix.NFT_JUMP, b.name)}))
	}
	for _, b := range states {
		if b.name == "INVALID" && slices.Contains(starts, p.hook) && p.priority <= priorityTracking {
			continue // the kernel says so of packets that it does not track yet
		}
		rules = append(rules, rule(hasBit(unix.NFT_CT_STATE, b.bit), []expression{lead(unix.NFT_GOTO, b.name)}))
	}
	return rules
}
