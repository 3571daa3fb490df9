// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/viplab/viplab/lab/traffic"
)

// judge finds out how packets ended.
type judge struct {
	*Traced
	answer traffic.Answer
	names  map[netip.Addr]string
}

// judge sets the ends of all packets. Names are those of addresses. Places, Errors and Losses are known.
func (t *Traced) judge(answer traffic.Answer, names map[netip.Addr]string) {
	j := judge{t, answer, names}
	for _, w := range t.Walks() {
		if len(w.Steps) == 0 {
			continue
		}
		if !j.byRule(w) {
			j.delivered(w)
		}
	}
	if t.Walk.End == nil {
		t.Walk.End = j.unsent()
		return
	}
	answered := answer.Outcome == traffic.Reply || answer.Outcome == traffic.Garbled
	if t.Walk.End.Outcome == Delivered && !answered {
		j.unanswered(t.Walk)
	}
}

// byRule reports whether a rule has ended a packet.
func (j judge) byRule(w *Walk) bool {
	i := slices.IndexFunc(w.Steps, func(s Step) bool { return s.Verdict == "drop" })
	if i < 0 {
		return false
	}
	s := w.Steps[i]
	w.End = &End{Outcome: Dropped, Place: s.Place, Step: i, Cause: CauseRule}
	did := "has dropped it"
	if w == j.Walk && j.refused() {
		w.End.Outcome, did = Refused, "has refused it"
	}
	by := fmt.Sprintf("the rule %q of %s, table %s %s, chain %s,", s.Rule, s.Backend, s.Family, s.Table, s.Chain)
	if s.Rule == "" {
		by = fmt.Sprintf("the policy of the chain %s of %s, table %s %s,", s.Chain, s.Backend, s.Family, s.Table)
	}
	w.End.Text = fmt.Sprintf("On %s, %s %s.", s.Place, by, did)
	return true
}

func (j judge) refused() bool {
	return j.answer.Outcome == traffic.Refused || j.answer.Outcome == traffic.Unreachable || len(j.Errors) > 0
}

// delivered says that a packet has come to where its last step is.
func (j judge) delivered(w *Walk) {
	last := len(w.Steps) - 1
	w.End = &End{Outcome: Delivered, Place: j.receiver(w), Step: last, Cause: CauseSocket}
	w.End.Text = fmt.Sprintf("It has come to %s.", w.End.Place)
}

// receiver returns the place behind the last device of a walk if its address says which that is, else the last place.
// Of a pod it returns the name that the address has.
func (j judge) receiver(w *Walk) string {
	last := w.Steps[len(w.Steps)-1]
	if last.Direction != "out" && j.kind(last.Place) != "pod" {
		return last.Place
	}
	return cmp.Or(j.names[w.Last().Dst.Addr()], last.Place)
}

// Last returns the packet after the last step.
func (w *Walk) Last() Tuple {
	if len(w.Steps) == 0 {
		return w.First
	}
	last := w.Steps[len(w.Steps)-1]
	if last.After != nil {
		return *last.After
	}
	return last.Before
}

// unsent says why a packet was not sent.
func (j judge) unsent() *End {
	e := &End{Outcome: Lost, Place: j.From, Cause: CauseNeigh}
	e.Text = fmt.Sprintf(nextHop, j.From, j.Address.Addr())
	if j.refused() {
		e.Outcome, e.Cause = Refused, CauseRoute
		e.Text = fmt.Sprintf("%s cannot send it: it has no route to %s (%s).", j.From, j.Address.Addr(), j.answer.Detail)
	}
	return e
}

// unanswered finds out what has ended a packet that no rule has dropped and that no program has answered.
func (j judge) unanswered(w *Walk) {
	e, port := w.End, w.Last().Dst.Port()
	at := w.Steps[e.Step].Place // the last place that has seen the packet
	switch {
	case len(j.Errors) > 0 && len(j.Errors[0].Steps) > 0:
		j.byError(e, j.Errors[0])
	case j.answer.Outcome == traffic.Refused:
		e.Outcome, e.Cause = Refused, CausePort
		e.Text = fmt.Sprintf("No program in %s has %s port %d: it has answered with RST.", e.Place, j.Proto, port)
	case w.stage == routed || w.stage == devices && w.Steps[e.Step].Direction == "in" && j.kind(at) == "router":
		j.byRouting(e, w, at)
	case w.stage == postrouted:
		e.Outcome, e.Place, e.Cause = Lost, at, CauseNeigh
		e.Text = fmt.Sprintf(nextHop, at, w.Last().Dst.Addr())
	case e.Place == at && w.Steps[e.Step].Direction == "out":
		e.Outcome, e.Cause = Lost, CauseUnknown
		e.Text = fmt.Sprintf("It has left %s by %s, and no place that the trace looks at has taken it.", at,
			w.Steps[e.Step].Device)
	default:
		j.bySocket(e, at)
	}
}

// nextHop is what is said of a packet that waits for the link address of the next machine.
const nextHop = "%s has sent it to no device: no machine has answered for the address of the next hop to %s."

// kind returns that of a place.
func (t *Traced) kind(place string) string {
	for _, p := range t.Places {
		if p.Name == place {
			return p.Kind
		}
	}
	return ""
}

// bySocket says that a place has taken the packet, and what it has counted.
func (j judge) bySocket(e *End, at string) {
	e.Cause = CauseUnknown
	e.Text = fmt.Sprintf("It has come to %s, and no program there has answered it.", e.Place)
	for _, l := range j.Losses {
		if l.Place == at && slices.Contains(socketCounters, l.Counter) {
			e.Outcome, e.Cause = Dropped, CausePort
			e.Losses = append(e.Losses, l)
			e.Text = fmt.Sprintf("It has come to %s, where %s (%s).", e.Place, l.Why, l.Counter)
		}
	}
}

// socketCounters count packets that have come to their destination and find nobody.
var socketCounters = []string{"Udp.NoPorts", "Udp6NoPorts", "TcpExt.ListenOverflows"}

// byRouting says what has ended a packet between prerouting and the next hook: where its way is decided.
func (j judge) byRouting(e *End, w *Walk, at string) {
	e.Outcome, e.Place, e.Cause = Dropped, at, CauseUnknown
	e.Text = fmt.Sprintf("%s has dropped it when it looked for a route; the trace does not see why.", at)
	now := w.Last()
	for _, l := range j.Losses {
		if cause, ok := routeCounters[l.Counter]; ok && l.Place == at {
			e.Cause, e.Losses = cause, append(e.Losses, l)
			e.Text = fmt.Sprintf("%s has dropped it: %s (%s).", at, l.Why, l.Counter)
		}
	}
	if e.Cause == CauseUnknown || e.Cause == CauseRoute {
		if why := j.martian(at, now); why != "" {
			e.Cause, e.Text = CauseMartian, fmt.Sprintf("%s has dropped it: %s.", at, why)
		}
	}
}

// routeCounters count packets that have no way on.
var routeCounters = map[string]Cause{
	"TcpExt.IPReversePathFilter": CauseFilter,
	"IpExt.InNoRoutes":           CauseRoute, "Ip6InNoRoutes": CauseRoute,
	"Ip.InAddrErrors": CauseRoute, "Ip6InAddrErrors": CauseRoute,
	"Ip.InHdrErrors": CauseHops, "Ip6InHdrErrors": CauseHops,
}

// martian says which address of a packet that came in cannot be on the wire (ip_route_input_slow in the kernel's
// net/ipv4/route.c), and nothing if both can. The kernel counts such packets for the whole machine only.
func (j judge) martian(at string, now Tuple) string {
	src, dst := now.Src.Addr(), now.Dst.Addr()
	switch {
	case src.IsLoopback() || src.IsMulticast() || src.IsUnspecified():
		return fmt.Sprintf("%s is no source of a packet (martian source)", src)
	case dst.IsLoopback() || dst.IsUnspecified():
		return fmt.Sprintf("%s is no destination outside of a machine (martian destination)", dst)
	}
	for _, p := range j.Places {
		for _, d := range p.Devices {
			if p.Name == at && slices.ContainsFunc(d.Addresses, func(a netip.Prefix) bool { return a.Addr() == src }) {
				return fmt.Sprintf("it comes from outside with %s, an address of %s itself (martian source)", src, at)
			}
		}
	}
	return ""
}

// byError says what an ICMP error says.
func (j judge) byError(e *End, w *Walk) {
	e.Outcome, e.Place = Refused, w.Steps[0].Place
	if from := j.names[w.First.Src.Addr()]; from != "" && w.Steps[0].Direction == "in" {
		e.Place = from // the trace does not look into that place
	}
	port := fmt.Sprintf("no program there has %s port %d", j.Proto, j.Walk.Last().Dst.Port()) // of the request
	to := j.Walk.Last().Dst.Addr()
	route := fmt.Sprintf("there is no route to %s", to)
	forbids := fmt.Sprintf("its route to %s forbids it", to)
	nobody := fmt.Sprintf("no machine has answered for the next hop to %s", to)
	hops := "its last hop is over"
	size := "it is too big for the next device, and must not be cut into fragments"
	meanings := map[[2]byte]meaning{ // RFC 792, RFC 1812 5.2.7.1
		{3, 0}: {CauseRoute, route}, {3, 1}: {CauseNeigh, nobody}, {3, 2}: {CausePort, "it does not know the protocol"},
		{3, 3}: {CausePort, port}, {3, 4}: {CauseSize, size}, {3, 9}: {CauseRoute, forbids}, {3, 10}: {CauseRoute, forbids},
		{3, 13}: {CauseRoute, forbids}, {11, 0}: {CauseHops, hops}, {11, 1}: {CauseSize, "fragments of it were lost"},
	}
	if w.First.Src.Addr().Is6() { // RFC 4443
		meanings = map[[2]byte]meaning{
			{1, 0}: {CauseRoute, route}, {1, 1}: {CauseRoute, forbids}, {1, 3}: {CauseNeigh, nobody},
			{1, 4}: {CausePort, port}, {1, 6}: {CauseRoute, route}, {2, 0}: {CauseSize, size}, {3, 0}: {CauseHops, hops},
			{3, 1}: {CauseSize, "fragments of it were lost"},
		}
	}
	m := meanings[w.key.kind]
	e.Cause = cmp.Or(m.cause, CauseUnknown)
	e.Text = fmt.Sprintf("%s has refused it: %s (ICMP type %d code %d).", e.Place,
		cmp.Or(m.text, "see the ICMP error"), w.key.kind[0], w.key.kind[1])
}

// meaning is what an ICMP error says.
type meaning struct {
	cause Cause
	text  string
}
