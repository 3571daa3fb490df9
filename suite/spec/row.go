// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/traffic"
)

// Row is a probe and its required outcome.
type Row struct {
	// From is the sender: a pod, node or outside host. A node's name means a process on the node itself.
	From string
	// Source is the source address, one of From's own; its port has no meaning. The zero value lets the kernel choose.
	Source Target
	// To is the destination.
	To Target
	// Proto is "tcp" (the zero value), "udp" or "sctp". Over SCTP, silence is waited for, not proved, and an ICMP error
	// counts as silence. Conn, SourcePort and Payload do not apply to it.
	Proto string
	// Family limits the row to one IP family. Zero means every family of the cluster.
	Family lab.Family
	// If limits the row to proxiers that declare the feature, and Unless to those that do not. Empty means every
	// proxier.
	If, Unless Feature
	// Times is how many fresh connections are made, one after another. Zero means one, but with Even or Sticky the
	// least number that can show a violation.
	Times int
	// Conn, if not empty, names a connection that stays open. The first row with this name opens it, later rows send on
	// it, and the same server must answer them all. With Times, each row sends that often. A UDP socket is kept even if
	// its first datagram is not answered, a TCP connection only if it is.
	Conn string
	// MayMove allows a kept connection to change to another of Servers from this row on.
	MayMove bool
	// SourcePort is the client's port. Zero means a new one for each connection.
	SourcePort uint16
	// Payload is the number of bytes sent in each direction in addition to the greeting.
	Payload int

	// Rule, if not empty, begins the row's label in place of step, sender and target: the rule of an oracle that the row
	// follows, as in "external-local/client/nodeport".
	Rule string

	// Choice, if not empty, names a behaviour that the API leaves to implementations: "an open connection that a new
	// policy denies". Want lists the allowed outcomes. The report of a pass lists those that occurred.
	Choice string

	// Want is the set of allowed outcomes. The zero value means Reply.
	Want Want
	// Servers lists those that may answer. A row that wants a Reply names them.
	Servers []string
	// Port is the server's port that the connection must reach. Zero means any.
	Port uint16
	// SeenAs is the client address that the server must see. The zero value means any.
	SeenAs Peer
	// Even requires answers spread evenly over all Servers (an exact test with a false-alarm rate below 1e-7). Without
	// Times, the test detects servers that get no share; finer differences need more connections. A spread that raises
	// Suspicion is probed further, up to four times as often. In a row that allows other outcomes too, the unanswered
	// probes count as the share of one more server.
	Even bool
	// Sticky requires all answers from one server. Without Times, the test misses a proxier that draws one of Servers each
	// time in less than one in a million rows.
	Sticky bool
	// Flow is the conntrack entry that a node must hold, or must not hold. The zero value requires nothing. A proxier
	// without KernelNAT has no entry to hold: its row is judged without.
	Flow FlowWant
}

// Want is a set of outcomes.
type Want uint8

// The outcomes that a row can allow. The zero value of Want means Reply.
const (
	Reply Want = 1 << iota
	Refused
	Unreachable
	Reset
	Silence

	// NotServed is every outcome except an answer.
	NotServed = Refused | Unreachable | Reset | Silence
)

var wants = []struct {
	want    Want
	outcome traffic.Outcome
}{
	{Reply, traffic.Reply}, {Refused, traffic.Refused}, {Unreachable, traffic.Unreachable},
	{Reset, traffic.Reset}, {Silence, traffic.Silence},
}

// Allows reports whether the outcome is in the set.
func (w Want) Allows(o traffic.Outcome) bool {
	for _, x := range wants {
		if x.outcome == o {
			return w.orReply()&x.want != 0
		}
	}
	return false
}

func (w Want) orReply() Want {
	if w == 0 {
		return Reply
	}
	return w
}

// String returns the names of the outcomes: "Refused or Silence".
func (w Want) String() string {
	if w == NotServed {
		return "not served"
	}
	var names []string
	for _, x := range wants {
		if w.orReply()&x.want != 0 {
			names = append(names, x.outcome.String())
		}
	}
	return strings.Join(names, " or ")
}

// Peer is the client address that a server must see.
type Peer struct {
	kind peerKind
	node string
}

type peerKind uint8

const (
	peerAny peerKind = iota
	peerClient
	peerNode
	peerEgress
	peerHairpin
	peerEither
)

// ClientAddr returns the client's own address and port: nothing has rewritten the source.
func ClientAddr() Peer { return Peer{kind: peerClient} }

// NodeAddr returns the peer for any address of the node, because the address depends on the interface that the packet
// leaves by.
func NodeAddr(node string) Peer { return Peer{peerNode, node} }

// EgressOf returns the peer for the address of the interface by which the node sends to the pod that answered.
func EgressOf(node string) Peer { return Peer{peerEgress, node} }

// ClientAddrUnlessHairpin returns the peer for the client's own address. A client that reaches itself through the
// Service may have any address.
func ClientAddrUnlessHairpin() Peer { return Peer{kind: peerHairpin} }

// ClientAddrOrNode returns the peer for the client's own address or any address of a node: the API lets implementations
// masquerade under the traffic policy Cluster. The report includes which of the two the servers saw.
func ClientAddrOrNode() Peer { return Peer{kind: peerEither} }

// String describes the client address in words.
func (p Peer) String() string {
	switch p.kind {
	case peerClient:
		return "the client itself"
	case peerNode:
		return p.node
	case peerEgress:
		return p.node + "'s egress interface"
	case peerHairpin:
		return "the client itself, unless it answers itself"
	case peerEither:
		return "the client itself or a node"
	default:
		return "anyone"
	}
}

// FlowWant is the conntrack entry that a node must hold for a probe, or must not hold.
type FlowWant struct {
	// Node is the node whose table is read. Empty means that nothing is required.
	Node string
	// None requires that there is no entry, whatever the outcome.
	None bool
	// SNAT requires the source to be rewritten to an address of the node as well. If false, the source must be
	// unchanged.
	SNAT bool
}

// TranslatedOn requires an entry on the node: destination rewritten to the server that answered, source kept.
func TranslatedOn(node string) FlowWant { return FlowWant{Node: node} }

// MasqueradedOn requires an entry on the node: destination rewritten to the server, source to the node.
func MasqueradedOn(node string) FlowWant { return FlowWant{Node: node, SNAT: true} }

// UntrackedOn requires that the node has no entry of the probe.
func UntrackedOn(node string) FlowWant { return FlowWant{Node: node, None: true} }

// RequiresEntry reports whether the node must hold an entry.
func (f FlowWant) RequiresEntry() bool { return f != FlowWant{} && !f.None }

// Concerns reports whether a probe with the outcome is judged by its entry. Only an answered one must have an entry.
func (f FlowWant) Concerns(o traffic.Outcome) bool {
	return f.None || f.RequiresEntry() && o == traffic.Reply
}

// Protocol returns Proto, or its default "tcp".
func (r Row) Protocol() string {
	if r.Proto == "" {
		return "tcp"
	}
	return r.Proto
}

// Probe describes the row's probe in words: "client -> n1:nodePort(web:80)/tcp v4 ×15". With the zero family it leaves
// the family out.
func (r Row) Probe(family lab.Family) string {
	s := r.From
	if r.Source != (Target{}) {
		s += " as " + r.Source.String()
	}
	s += fmt.Sprintf(" -> %s/%s", r.To, r.Protocol())
	if family != 0 {
		s += " " + family.String()
	}
	if r.Count() > 1 {
		s += fmt.Sprintf(" ×%d", r.Count())
	}
	if r.Conn != "" {
		s += " on connection " + r.Conn
	}
	return s
}

// Label returns a stable name of the row, without addresses, ports or its number: the name of the step, the sender, the
// kind of target and the protocol if it is not TCP, as in "the-service-is-deleted/client/nodeport/udp".
func (r Row) Label(step string) string {
	kind := map[TargetKind]string{
		VIP: "clusterip", NodePortOf: "nodeport", Ingress: "ingress", HostPort: "host", Literal: "address",
	}[r.To.Kind]
	parts := []string{r.From, kind}
	switch {
	case r.Rule != "":
		parts = []string{r.Rule}
	case step != "":
		parts = slices.Insert(parts, 0, strings.Trim(notWords.ReplaceAllString(strings.ToLower(step), "-"), "-"))
	}
	if r.Protocol() != "tcp" {
		parts = append(parts, r.Protocol())
	}
	return strings.Join(parts, "/")
}

var notWords = regexp.MustCompile(`[^a-z0-9]+`)

// Count returns Times, or its default.
func (r Row) Count() int {
	switch {
	case r.Times > 0:
		return r.Times
	case r.Even:
		return leastDraws(len(r.shares()))
	case r.Sticky:
		return leastRepeats(len(r.Servers))
	}
	return 1
}

// Concerns reports whether the row applies to a proxier with these features.
func (r Row) Concerns(features FeatureSet) bool {
	return (r.If == "" || features[r.If]) && (r.Unless == "" || !features[r.Unless])
}

func (r Row) validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("row %s -> %s: "+format, append([]any{r.From, r.To}, args...)...))
	}
	replies := r.Want.orReply()&Reply != 0
	if r.From == "" {
		bad("no sender")
	}
	if replies && len(r.Servers) == 0 {
		bad("wants an answer but does not say by whom")
	}
	if !replies && (len(r.Servers) > 0 || r.Port != 0 || r.SeenAs != Peer{} || r.Flow.RequiresEntry() || r.Even ||
		r.Sticky) {
		bad("judges an answer that it does not want")
	}
	switch p := r.Protocol(); {
	case p != "tcp" && p != "udp" && p != "sctp":
		bad("unknown protocol %q", p)
	case p == "sctp" && (r.Conn != "" || r.SourcePort != 0 || r.Payload != 0):
		bad("an association has no Conn, SourcePort or Payload")
	}
	if n := len(r.shares()); r.Even && r.Count() < leastDraws(n) {
		bad("%d connections are too few to judge the spread over %d servers", r.Count(), n)
	}
	if w := r.Want.orReply(); r.Choice != "" && w&(w-1) == 0 {
		bad("a choice needs at least two outcomes")
	}
	if r.Conn == "" && r.MayMove {
		bad("only a kept connection can move")
	}
	for _, f := range []Feature{r.If, r.Unless} {
		if f != "" && !f.Known() {
			bad("unknown feature %q", f)
		}
	}
	return errors.Join(errs...)
}
