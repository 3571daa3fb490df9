// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/traffic"
)

// Observation is the result of one probe of a row.
type Observation struct {
	Family lab.Family
	To     netip.AddrPort
	traffic.Answer
	// Flow is the probe's entry in the conntrack table of the wanted node, nil if there is none.
	Flow *observe.Flow
	// Strays are the servers that received the probe although the client got no answer.
	Strays []string
	// First is the server that the kept connection was opened to. It is empty for rows without Conn.
	First string
}

// Facts are the properties of the cluster that Row.Judge needs.
type Facts struct {
	// Names maps an address to the name of the host that has it.
	Names map[netip.Addr]string
	// Nodes are the names of the nodes.
	Nodes []string
	// Egress returns the address of the interface by which a node sends to an address.
	Egress func(node string, to netip.Addr) netip.Addr
}

// Name returns the address with the name of its host: "a1 (10.244.1.2)".
func (f Facts) Name(a netip.Addr) string {
	if n, ok := f.Names[a.Unmap()]; ok {
		return n + " (" + a.String() + ")"
	}
	return a.String()
}

func (f Facts) has(host string, a netip.Addr) bool { return f.Names[a.Unmap()] == host }

// Judge compares the observations with the row, and returns one line for each mismatch. It is a pure function.
func (r Row) Judge(seen []Observation, facts Facts) []string {
	var wrong []string
	for _, o := range seen {
		if problem := r.judgeOne(o, facts); problem != "" && !slices.Contains(wrong, problem) {
			wrong = append(wrong, problem)
		}
	}
	return append(wrong, r.judgeAll(seen)...)
}

func (r Row) judgeOne(o Observation, facts Facts) string {
	if !r.Want.Allows(o.Outcome) {
		return "got " + describe(o, facts)
	}
	if strays := r.strays(o); len(strays) > 0 {
		return fmt.Sprintf("got %s, but %s received it", o.Outcome, strings.Join(strays, ", "))
	}
	if o.Outcome != traffic.Reply {
		return r.Flow.judge(o, facts)
	}
	switch {
	case !slices.Contains(r.Servers, o.Server):
		return "answered by " + o.Server
	case !r.MayMove && o.First != "" && o.First != o.Server:
		return fmt.Sprintf("answered by %s, but the connection was opened to %s", o.Server, o.First)
	case r.Port != 0 && o.Local.Port() != r.Port:
		return fmt.Sprintf("%s accepted on port %d", o.Server, o.Local.Port())
	}
	if problem := r.SeenAs.judge(r.From, o, facts); problem != "" {
		return problem
	}
	return r.Flow.judge(o, facts)
}

// strays returns the servers that must not have received an unanswered probe. If an answer is right as well, as during
// a change, the row's Servers may have received it: their answers were lost on the way back.
func (r Row) strays(o Observation) []string {
	if !r.Want.Allows(traffic.Reply) {
		return o.Strays
	}
	return slices.DeleteFunc(slices.Clone(o.Strays), func(s string) bool { return slices.Contains(r.Servers, s) })
}

func (p Peer) judge(from string, o Observation, facts Facts) string {
	itself := o.Peer == o.Source
	var ok bool
	switch p.kind {
	case peerAny:
		ok = true
	case peerClient:
		ok = itself
	case peerNode:
		ok = facts.has(p.node, o.Peer.Addr())
	case peerEgress:
		ok = o.Peer.Addr() == facts.Egress(p.node, o.Local.Addr())
	case peerHairpin:
		ok = itself || o.Server == from
	case peerEither:
		ok = itself || slices.Contains(facts.Nodes, facts.Names[o.Peer.Addr().Unmap()])
	}
	if ok {
		return ""
	}
	return fmt.Sprintf("%s saw %s:%d (the client is %s)", o.Server, facts.Name(o.Peer.Addr()), o.Peer.Port(), o.Source)
}

// Choice describes which client address servers saw if the peer allows several (ClientAddrOrNode). Otherwise it returns
// "".
func (p Peer) Choice(o Observation) string {
	switch {
	case p.kind != peerEither || o.Outcome != traffic.Reply:
		return ""
	case o.Peer == o.Source:
		return "under policy Cluster, servers see the client itself"
	default:
		return "under policy Cluster, servers see a node"
	}
}

func (f FlowWant) judge(o Observation, facts Facts) string {
	flow := o.Flow
	switch {
	case !f.Concerns(o.Outcome), f.None && flow == nil:
		return ""
	case f.None:
		return fmt.Sprintf("%s tracks it: %s", f.Node, flow)
	case flow == nil:
		return fmt.Sprintf("%s holds no conntrack entry of it", f.Node)
	}
	snat := flow.Reply.Dst.Addr() != o.Source.Addr()
	switch {
	case flow.Reply.Src != o.Local:
		return fmt.Sprintf("%s translates it to %s, but %s answered on %s", f.Node, flow.Reply.Src, o.Server, o.Local)
	case snat && !f.SNAT:
		return fmt.Sprintf("%s rewrites its source to %s", f.Node, facts.Name(flow.Reply.Dst.Addr()))
	case f.SNAT && !facts.has(f.Node, flow.Reply.Dst.Addr()):
		return fmt.Sprintf("%s does not rewrite its source to an address of its own, but leaves %s", f.Node,
			facts.Name(flow.Reply.Dst.Addr()))
	case flow.Mark != 0:
		return fmt.Sprintf("%s leaves mark %#x on its conntrack entry", f.Node, flow.Mark)
	}
	return ""
}

// nobody is the server name that stands for unanswered probes in the distribution of a row that allows them.
const nobody = "nobody"

// shares returns the servers over which an even row must be spread.
func (r Row) shares() []string {
	if r.Want.orReply() == Reply {
		return r.Servers
	}
	return append(slices.Clone(r.Servers), nobody)
}

func (r Row) judgeAll(seen []Observation) []string {
	var wrong []string
	if counts := answers(seen); r.Sticky && len(counts) > 1 {
		wrong = append(wrong, "not one server but several answered: "+tally(counts))
	}
	if r.Uneven(seen, FalseAlarm) {
		wrong = append(wrong, "not evenly spread: "+tally(r.spread(seen)))
	}
	return wrong
}

// Uneven reports whether the row wants an even spread that the observations of all its probes do not show. A fair draw
// counts as uneven with a chance of falseAlarm, which is between 0 and 1.
func (r Row) Uneven(seen []Observation, falseAlarm float64) bool {
	return r.Even && !evenly(r.spread(seen), r.shares(), falseAlarm)
}

// spread counts the answers of each server, and the probes without one if the row allows that.
func (r Row) spread(seen []Observation) map[string]int {
	counts := answers(seen)
	if len(r.shares()) > len(r.Servers) {
		answered := 0
		for _, n := range counts {
			answered += n
		}
		counts[nobody] = len(seen) - answered
	}
	return counts
}

// answers counts the answers of each server.
func answers(seen []Observation) map[string]int {
	counts := map[string]int{}
	for _, o := range seen {
		if o.Outcome == traffic.Reply {
			counts[o.Server]++
		}
	}
	return counts
}

// Got summarizes the observations for the table of a failure.
func (r Row) Got(seen []Observation, facts Facts) string {
	counts := map[string]int{}
	for _, o := range seen {
		counts[describe(o, facts)]++
	}
	if len(counts) > 3 {
		clear(counts)
		for _, o := range seen {
			counts[cmp.Or(o.Server, o.Outcome.String())]++
		}
	}
	if len(counts) == 1 {
		for text := range counts {
			return text
		}
	}
	silence := traffic.Silence.String()
	unanswered := counts[silence]
	if unanswered == 0 {
		return tally(counts)
	}
	delete(counts, silence)
	return fmt.Sprintf("%d of %d unanswered, %s", unanswered, len(seen), tally(counts))
}

// Wants summarizes the requirements of the row for the table of a failure.
func (r Row) Wants() string {
	if r.Want.orReply()&Reply == 0 {
		return r.Want.String()
	}
	s := r.Want.String() + " by " + strings.Join(r.Servers, "|")
	if r.Port != 0 {
		s += fmt.Sprintf(" on port %d", r.Port)
	}
	if r.SeenAs.kind != peerAny {
		s += ", seen as " + r.SeenAs.String()
	}
	if r.Even {
		s += ", evenly"
	}
	if r.Sticky {
		s += ", always the same"
	}
	if r.Flow.Node != "" {
		s += ", a conntrack entry on " + r.Flow.Node
		if r.Flow.SNAT {
			s += " with SNAT"
		} else {
			s += " without SNAT"
		}
	}
	return s
}

func describe(o Observation, facts Facts) string {
	if o.Fault != nil {
		return "fault: " + o.Fault.Error()
	}
	if o.Outcome == traffic.Reply {
		return fmt.Sprintf("Reply by %s, seen as %s", o.Server, facts.Name(o.Peer.Addr()))
	}
	if o.Detail != "" {
		return o.Outcome.String() + " (" + o.Detail + ")"
	}
	return o.Outcome.String()
}

func tally(counts map[string]int) string {
	var parts []string
	for name, n := range counts {
		parts = append(parts, fmt.Sprintf("%s ×%d", name, n))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
