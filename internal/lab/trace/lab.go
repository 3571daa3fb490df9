// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/viplab/viplab/internal/lab/ruleset"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/traffic"
)

// Lab is a lab whose packets can be traced.
type Lab struct {
	*lab.Lab
	// Names are those of addresses.
	Names map[netip.Addr]string
	// Conntrack returns the table of connection tracking of a node.
	Conntrack func(node string) *observe.Conntrack
	// Rules are those of nodes that were read before, by name. Start reads the others and adds them. Nil means to read
	// all.
	Rules map[string]*ruleset.Ruleset
	// Annotate adds to the rules of a node what they are about. Nil adds nothing.
	Annotate func(node string, r *ruleset.Ruleset) error
	// Proxier and Enforcer name what serves and guards the pods. Enforcer is empty if nothing does.
	Proxier, Enforcer string
	// Namespace is that of the pods to draw beside those that the packets concern. Empty means pods of all namespaces.
	Namespace string
	// Explain adds to the end of a request's first packet what the objects of the cluster say of it. Nil adds nothing.
	Explain func(*Traced)
	// Receivers returns the addresses of pods that may get packets which are sent to an address. Nil means that there are
	// no others than the address itself.
	Receivers func(to netip.AddrPort) []netip.Addr
}

// mostReceivers is how many pods a Tracer looks into besides the senders.
const mostReceivers = 64

// Start starts a Tracer for packets of one IP family on all nodes, on the router, at the senders, and in the pods that
// may get what they send. The kernel tells of the rules that packets from the senders and from nodes meet, which
// masquerade and relay them, unless Select has other sources.
func (l Lab) Start(ctx context.Context, f lab.Family, s Select, requests ...traffic.Probe) (*Tracer, error) {
	if s.Sources == nil {
		var err error
		if s.Sources, err = l.sources(f, requests); err != nil {
			return nil, err
		}
	}
	var nodes []*netns.NS
	for _, n := range l.Nodes() {
		nodes = append(nodes, n.NS)
	}
	others := []*netns.NS{l.Router().NS}
	var receivers []*netns.NS
	for _, r := range requests {
		others = append(others, r.From)
		receivers = append(receivers, l.receivers(r.To)...)
	}
	receivers = slices.DeleteFunc(distinct(receivers), func(ns *netns.NS) bool { return slices.Contains(others, ns) })
	others = distinct(append(others, receivers[:min(len(receivers), mostReceivers)]...))
	others = slices.DeleteFunc(others, func(ns *netns.NS) bool { return slices.Contains(nodes, ns) })
	family := ruleset.IP
	if f == lab.V6 {
		family = ruleset.IP6
	}
	return Start(ctx, nodes, others, family, s, l.reader(ctx))
}

// sources returns the addresses that the packets of requests may come from, before and after translation: those that
// the requests ask for, those of their senders, and those of nodes.
func (l Lab) sources(f lab.Family, requests []traffic.Probe) ([]netip.Addr, error) {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if f == lab.V6 {
		loopback = netip.IPv6Loopback()
	}
	sources := []netip.Addr{loopback}
	var senders []*netns.NS
	for _, r := range requests {
		senders = append(senders, r.From)
		sources = append(sources, r.Source.Addr())
	}
	hosts := []*lab.Host{l.Client(), l.Router()}
	for _, p := range l.Lab.Pods() {
		hosts = append(hosts, &p.Host)
	}
	hosts = slices.DeleteFunc(hosts, func(h *lab.Host) bool { return !slices.Contains(senders, h.NS) })
	for _, n := range l.Nodes() {
		hosts = append(hosts, &n.Host)
	}
	for _, h := range hosts {
		addrs, err := h.LocalAddrs()
		if err != nil {
			return nil, err
		}
		sources = append(sources, addrs...)
	}
	sources = slices.DeleteFunc(sources, func(a netip.Addr) bool { return !a.IsValid() || lab.FamilyOf(a) != f })
	slices.SortFunc(sources, netip.Addr.Compare)
	return slices.Compact(sources), nil
}

// receivers returns the pods that may get packets which are sent to an address.
func (l Lab) receivers(to netip.AddrPort) (pods []*netns.NS) {
	addrs := []netip.Addr{to.Addr()}
	if l.Receivers != nil {
		addrs = append(addrs, l.Receivers(to)...)
	}
	for _, p := range l.Lab.Pods() {
		if slices.ContainsFunc(p.Addrs(), func(a netip.Addr) bool { return slices.Contains(addrs, a) }) {
			pods = append(pods, p.NS)
		}
	}
	return pods
}

// distinct returns each of the values once, in their order.
func distinct[T comparable](all []T) (once []T) {
	for _, v := range all {
		if !slices.Contains(once, v) {
			once = append(once, v)
		}
	}
	return once
}

// reader returns a function that returns the annotated rules of a node. It may be called concurrently.
func (l Lab) reader(ctx context.Context) func(*netns.NS) (*ruleset.Ruleset, error) {
	var mu sync.Mutex
	return func(ns *netns.NS) (*ruleset.Ruleset, error) {
		mu.Lock()
		r := l.Rules[ns.Name()]
		mu.Unlock()
		if r != nil {
			return r, nil
		}
		r, err := ruleset.Read(ctx, ns)
		if err == nil && l.Annotate != nil {
			err = l.Annotate(ns.Name(), r)
		}
		if l.Rules != nil && err == nil {
			mu.Lock()
			defer mu.Unlock()
			l.Rules[ns.Name()] = r
		}
		return r, err
	}
}

// Exchange is a request that was sent while a Tracer recorded.
type Exchange struct {
	Probe  traffic.Probe
	Answer traffic.Answer
	// To names the destination, and Verdict is the outcome with what is known of the server.
	To, Verdict string
	// Reply means to follow the packet that answers, too. The Tracer must have selected it.
	Reply bool
}

// Traced returns what became of a request. The Tracer has ended.
func (l Lab) Traced(ctx context.Context, t *Tracer, x Exchange) (*Traced, error) {
	overlay, _ := l.Overlay()
	r := &Traced{
		APIVersion: APIVersion, Kind: Kind,
		Setup: Setup{
			Proxier: l.Proxier, Enforcer: l.Enforcer, Pods: l.Topology().PodNetwork.String(), Overlay: overlay.String(),
		},
		From: x.Probe.From.Name(), To: x.To, Proto: x.Probe.Proto, Source: x.Answer.Source, Address: x.Probe.To,
		Outcome: x.Answer.Outcome.String(), Verdict: x.Verdict,
	}
	var err error
	r.Walk, err = t.Walk(r.From, r.Proto, r.Source, r.Address)
	if err != nil && x.Answer.Outcome == traffic.Reply {
		return nil, err
	}
	if err != nil { // it has sent nothing
		r.Walk = &Walk{First: Tuple{Src: r.Source, Dst: r.Address}}
	}
	if x.Reply && err == nil {
		if r.Reply, err = t.Reply(r.From, r.Proto, r.Source, r.Address); err != nil {
			return nil, err
		}
	}
	if x.Answer.Outcome == traffic.Reply {
		r.Relayed = t.Relayed(r.Walk, x.Answer.Peer, x.Answer.Local)
	} else {
		r.Losses = t.Losses()
	}
	r.Errors = t.errors(r.Walk.key, r.From)
	for _, w := range r.Walks() {
		t.describe(w, r.Proto)
	}
	r.Chains = t.chains(r.Walks())
	r.name(l.Names)
	if r.Places, err = Places(l.spaces(x.Probe.From, r.Names)); err != nil {
		return nil, err
	}
	r.judge(x.Answer, l.Names)
	if l.Explain != nil {
		l.Explain(r)
	}
	r.Unseen = r.unseen()
	r.Flows, err = l.flows(ctx, r)
	return r, err
}

// shownPods is how many pods spaces returns beside those of the trace.
const shownPods = 12

// spaces returns the machines of the network, the switch between them, the pods that the packets concern, and some
// others. Names are those of the packets' addresses.
func (l Lab) spaces(from *netns.NS, names map[netip.Addr]string) []Space {
	spaces := []Space{
		{NS: l.Underlay(), Kind: "switch"}, {NS: l.Router().NS, Kind: "router"}, {NS: l.Client().NS, Kind: "client"},
	}
	for _, n := range l.Nodes() {
		spaces = append(spaces, Space{NS: n.NS, Kind: "node"})
	}
	others := 0
	for _, p := range l.Lab.Pods() {
		concerned := p.NS == from || slices.ContainsFunc(p.Addrs(), func(a netip.Addr) bool { return names[a] != "" })
		if !concerned {
			if others == shownPods || l.Namespace != "" && !strings.HasPrefix(p.NS.Name(), l.Namespace+"/") {
				continue
			}
			others++
		}
		spaces = append(spaces, Space{NS: p.NS, Kind: "pod", Node: p.Node().Name()})
	}
	return spaces
}

// flows returns the entries of connection tracking of all nodes that the packets have made or used, and notes them at
// the steps.
func (l Lab) flows(ctx context.Context, r *Traced) ([]Flow, error) {
	var known []observe.Tuple
	for _, t := range r.tuples() {
		known = append(known, observe.Tuple{Src: t.Src, Dst: t.Dst})
	}
	var all []Flow
	for _, n := range l.Nodes() {
		flows, err := tracked(ctx, l.Conntrack(n.Name()), r, distinct(known))
		if err != nil {
			return nil, err
		}
		for _, f := range flows {
			all = append(all, Flow{Node: n.Name(), Flow: f.String(), Made: r.note(n.Name(), f)})
		}
	}
	return all, nil
}

// tracked returns the entries of a table whose first packet was one of the tuples. It looks them up, which takes no
// time in large tables. Only echoes and the entries of other zones need a listing.
func tracked(ctx context.Context, table *observe.Conntrack, r *Traced, known []observe.Tuple) ([]observe.Flow, error) {
	var all []observe.Flow
	ids := r.echoes()
	for _, t := range known {
		if ids != nil {
			break
		}
		f, ok, err := table.Flow(r.Proto, t)
		if err != nil {
			return nil, err
		}
		if ok {
			all = append(all, f)
		}
	}
	if len(all) > 0 {
		return all, nil
	}
	return table.Flows(ctx, func(f observe.Flow) bool {
		return f.Proto == r.Proto && slices.Contains(known, tupleOf(f.Proto, f.Orig)) &&
			(ids == nil || ids[f.Orig.Src.Port()])
	})
}

// echoes returns the ids that an echo had (RFC 792), nil for other packets.
func (t *Traced) echoes() map[uint16]bool {
	if !strings.HasPrefix(t.Proto, "icmp") {
		return nil
	}
	ids := map[uint16]bool{}
	for _, s := range t.Walk.Steps {
		if s.Frame == nil {
			continue
		}
		p, err := observe.Decode(observe.Frame{Ethernet: s.Frame.Ethernet, Data: s.Frame.Data})
		if err != nil {
			continue
		}
		if b := transport(p.Innermost()); len(b) >= datagramHeader {
			ids[binary.BigEndian.Uint16(b[4:])] = true
		}
	}
	return ids
}

// tupleOf returns a direction of a flow as packets have it: ICMP has an id and a type where others have ports.
func tupleOf(proto string, t observe.Tuple) observe.Tuple {
	if strings.HasPrefix(proto, "icmp") {
		t.Src, t.Dst = netip.AddrPortFrom(t.Src.Addr(), 0), netip.AddrPortFrom(t.Dst.Addr(), 0)
	}
	return t
}

// note writes an entry to the steps at which connection tracking finds it, or translates by it. It reports whether the
// entry was made there.
func (t *Traced) note(node string, f observe.Flow) (made bool) {
	for _, w := range t.Walks() {
		for i := range w.Steps {
			s := &w.Steps[i]
			if s.Place != node || s.Kernel == "" || s.Flow != "" || s.After == nil ||
				!concerns(f, s.Before) && !concerns(f, *s.After) {
				continue
			}
			s.Flow = f.String()
			made = made || strings.HasPrefix(s.After.State, "NEW")
		}
	}
	return made
}

// concerns reports whether a packet belongs to a flow, before or after translation. An ICMP error belongs to that of
// the packet that it quotes.
func concerns(f observe.Flow, t Tuple) bool {
	now := observe.Tuple{Src: t.Src, Dst: t.Dst}
	if t.Quoted != nil {
		now = observe.Tuple{Src: t.Quoted.Src, Dst: t.Quoted.Dst}
	}
	back := observe.Tuple{Src: now.Dst, Dst: now.Src}
	orig, reply := tupleOf(f.Proto, f.Orig), tupleOf(f.Proto, f.Reply)
	return now == orig || now == reply || back == orig || back == reply
}

// unseen says what the trace could not see.
func (t *Traced) unseen() (all []string) {
	if t.Relayed != nil {
		all = append(all, fmt.Sprintf("what the program on %s does between the two connections", t.Walk.End.Place))
	}
	met, passed := map[string]bool{}, []string{}
	for _, w := range t.Walks() {
		for _, s := range w.Steps {
			met[s.Place] = met[s.Place] || s.Device == "" || s.Before.State != ""
			if s.Kernel == aside {
				all = append(all, fmt.Sprintf("what changes the packet on %s besides netfilter", s.Place))
			}
			if !slices.Contains(passed, s.Place) && t.kind(s.Place) == "node" {
				passed = append(passed, s.Place)
			}
		}
	}
	for _, p := range passed {
		if !met[p] {
			all = append(all, fmt.Sprintf("rules on %s: the packet has met none there, or has passed by netfilter", p))
		}
	}
	return all
}
