// SPDX-License-Identifier: Apache-2.0

// Package match has Gomega matchers for answers of probes, conntrack entries and captured packets.
//
//	Expect(probe.Do(ctx)).To(match.ReplyFrom("a2"))
//	Expect(probe.Do(ctx)).To(And(match.ReplyFrom("a2"), match.SeenAs(pod.Addr(lab.V4))))
//	Expect(flow).To(match.DNATTo(backend))
//	Expect(recording.Packets()).To(ContainElement(And(match.From(client), match.Flags("SYN"))))
//
// A failure prints the wanted value above the observed one. A probe that did not work (traffic.Answer.Fault) is an
// error for every matcher, so that neither To nor NotTo passes.
package match

import (
	"fmt"
	"net/netip"

	"github.com/onsi/gomega/types"

	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/traffic"
)

// matcher compares a value of one type with the wanted one.
type matcher[T any] struct {
	want  string
	match func(T) (bool, error)
}

func (m matcher[T]) Match(actual any) (bool, error) {
	got, ok := actual.(T)
	if !ok {
		return false, fmt.Errorf("%s: want a %T to look at, got a %T", m.want, got, actual)
	}
	return m.match(got)
}

func (m matcher[T]) FailureMessage(actual any) string {
	return fmt.Sprintf("want %s\ngot  %v", m.want, actual)
}

func (m matcher[T]) NegatedFailureMessage(actual any) string {
	return fmt.Sprintf("want not %s\ngot  %v", m.want, actual)
}

// answer matches a traffic.Answer that is no fault.
func answer(want string, match func(traffic.Answer) bool) types.GomegaMatcher {
	return matcher[traffic.Answer]{want, func(a traffic.Answer) (bool, error) { return match(a), a.Fault }}
}

// ReplyFrom matches an answer from the server of that name (see traffic.Serve).
func ReplyFrom(server string) types.GomegaMatcher {
	return answer("Reply by "+server, func(a traffic.Answer) bool {
		return a.Outcome == traffic.Reply && a.Server == server
	})
}

// SeenAs matches an answer whose server saw the given client address.
func SeenAs(client netip.Addr) types.GomegaMatcher {
	return answer(fmt.Sprintf("Reply, seen as %s", client), func(a traffic.Answer) bool {
		return a.Outcome == traffic.Reply && a.Peer.Addr() == client
	})
}

// ReachedAt matches an answer whose server received the request at the given address and port.
func ReachedAt(local netip.AddrPort) types.GomegaMatcher {
	return answer(fmt.Sprintf("Reply at %s", local), func(a traffic.Answer) bool {
		return a.Outcome == traffic.Reply && a.Local == local
	})
}

// Replied matches an answer from any server.
func Replied() types.GomegaMatcher { return Outcome(traffic.Reply) }

// Refused matches a probe that the addressed port refused: a RST to the SYN, or an ICMP port unreachable.
func Refused() types.GomegaMatcher { return Outcome(traffic.Refused) }

// Unreachable matches a probe that the network refused: any other ICMP unreachable, or no route.
func Unreachable() types.GomegaMatcher { return Outcome(traffic.Unreachable) }

// Reset matches an established connection that ended without an answer.
func Reset() types.GomegaMatcher { return Outcome(traffic.Reset) }

// Silent matches the absence of any answer. The probe needs fences to prove it.
func Silent() types.GomegaMatcher { return Outcome(traffic.Silence) }

// Outcome matches a probe by its outcome.
func Outcome(want traffic.Outcome) types.GomegaMatcher {
	return answer(want.String(), func(a traffic.Answer) bool { return a.Outcome == want })
}

// flow matches an observe.Flow.
func flow(want string, match func(observe.Flow) bool) types.GomegaMatcher {
	return matcher[observe.Flow]{want, func(f observe.Flow) (bool, error) { return match(f), nil }}
}

// DNATTo matches a flow whose destination is translated to an address and port.
func DNATTo(to netip.AddrPort) types.GomegaMatcher {
	return flow(fmt.Sprintf("DNAT to %s", to), func(f observe.Flow) bool { return f.DNAT() && f.Reply.Src == to })
}

// SNATTo matches a flow whose source is translated to an address, whatever the port.
func SNATTo(to netip.Addr) types.GomegaMatcher {
	return flow(fmt.Sprintf("SNAT to %s", to), func(f observe.Flow) bool {
		return f.SNAT() && f.Reply.Dst.Addr() == to
	})
}

// Untranslated matches a flow with neither DNAT nor SNAT.
func Untranslated() types.GomegaMatcher {
	return flow("no translation", func(f observe.Flow) bool { return !f.DNAT() && !f.SNAT() })
}

// InZone matches a flow in a conntrack zone.
func InZone(zone uint16) types.GomegaMatcher {
	return flow(fmt.Sprintf("conntrack zone %d", zone), func(f observe.Flow) bool { return f.Zone == zone })
}

// InState matches a TCP flow in a state, spelled as conntrack prints it: "ESTABLISHED".
func InState(state string) types.GomegaMatcher {
	return flow("TCP state "+state, func(f observe.Flow) bool { return f.TCPState == state })
}

// packet matches an observe.Packet.
func packet(want string, match func(*observe.Packet) bool) types.GomegaMatcher {
	return matcher[*observe.Packet]{want, func(p *observe.Packet) (bool, error) { return match(p), nil }}
}

// Proto matches a packet of a protocol, spelled as in observe.Packet.
func Proto(name string) types.GomegaMatcher {
	return packet(name+" packet", func(p *observe.Packet) bool { return p.Proto == name })
}

// From matches a packet from a source address and port.
func From(src netip.AddrPort) types.GomegaMatcher {
	return packet(fmt.Sprintf("packet from %s", src), func(p *observe.Packet) bool { return p.Src == src })
}

// To matches a packet with a destination address and port.
func To(dst netip.AddrPort) types.GomegaMatcher {
	return packet(fmt.Sprintf("packet to %s", dst), func(p *observe.Packet) bool { return p.Dst == dst })
}

// Flags matches a TCP segment with exactly these flags, joined by commas: "SYN,ACK".
func Flags(flags string) types.GomegaMatcher {
	return packet(flags+" segment", func(p *observe.Packet) bool { return p.Proto == "tcp" && p.Flags == flags })
}
