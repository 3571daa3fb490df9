// SPDX-License-Identifier: Apache-2.0

package live

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	. "github.com/viplab/viplab/internal/lab/nstest"
	"github.com/viplab/viplab/internal/lab/trace"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/observe"
)

// wanted is what a walk should show.
type wanted struct {
	t        *testing.T
	lab      *tracedLab
	mode     mode
	kind     kind
	family   lab.Family
	evidence *evidence

	now     trace.Tuple
	answer  bool     // the packet that answers
	isError bool     // an ICMP error
	passed  []string // places
	changes []string
}

// isNode reports whether a place has rules.
func (w *wanted) isNode(place string) bool { return w.lab.standing.Cluster().Lab().Node(place) != nil }

// follow works out the changes of the first packet from its addresses at the sender.
func (w *wanted) follow(first observe.Tuple) {
	w.now = trace.Tuple{Src: first.Src, Dst: first.Dst}
	for _, place := range w.kind.path {
		w.passed = append(w.passed, place)
		if !w.isNode(place) {
			continue
		}
		w.now.State, w.now.Mark = "", 0
		w.pass(place)
		if place == w.kind.at && w.mode.relays {
			return // a program takes it
		}
	}
}

// pass works out the changes at a node.
func (w *wanted) pass(node string) {
	k, begin := w.kind, "prerouting"
	if node == k.from {
		begin = "output"
	}
	flow := w.evidence.flow(node, observe.Tuple{Src: w.now.Src, Dst: w.now.Dst})
	if flow == nil && (node != k.end || w.mode.relays && node == k.at) {
		w.t.Fatalf("%s does not track %s > %s", node, w.now.Src, w.now.Dst)
	}
	w.change(node, begin, func(now *trace.Tuple) { now.State = "NEW" })
	if strings.HasPrefix(k.to, "lb/") && node == k.at {
		w.change(node, begin, func(now *trace.Tuple) { now.Mark |= w.mode.delivers })
	}
	if w.mode.virtual && k.marked {
		w.change(node, begin, func(now *trace.Tuple) { now.Mark |= w.mode.mark })
	}
	if node == k.at {
		w.translate(node, begin, flow)
	}
	if w.lab.calico {
		w.accept(node)
	}
	if node == k.at && k.masquerade && !w.mode.relays {
		w.masquerade(node, flow)
	}
}

// translate works out what the proxier does to the destination.
func (w *wanted) translate(node, hook string, flow *observe.Flow) {
	to := w.lab.podAddr(w.t, w.kind.server, w.family)
	if w.mode.relays {
		w.change(node, hook, func(now *trace.Tuple) { now.Dst, now.State = flow.Reply.Src, "NEW,DNAT" })
		return
	}
	if flow != nil && flow.Reply.Src != to {
		w.t.Errorf("connection tracking of %s: %s, want the server %s", node, flow, to)
	}
	mark := func(now *trace.Tuple) { now.Mark = now.Mark&w.mode.delivers | w.kind.marks(w.mode) }
	late := w.mode.virtual && w.kind.hairpins() // IPVS has chosen the pod itself, which its rules see at postrouting
	if w.kind.masquerade && !late {
		w.change(node, hook, mark)
	}
	if !w.mode.virtual {
		w.change(node, hook, func(now *trace.Tuple) { now.Dst, now.State = to, "NEW,DNAT" })
		return
	}
	if hook == "prerouting" {
		hook = "input"
	}
	w.change(node, hook, func(now *trace.Tuple) { now.Dst = to })
	w.change(node, "output", func(now *trace.Tuple) { now.Mark &^= w.mode.delivers })
	if late {
		w.change(node, "postrouting", mark)
	}
}

// masquerade works out what the proxier does to the source.
func (w *wanted) masquerade(node string, flow *observe.Flow) {
	w.isOf(node, flow.Reply.Dst.Addr())
	if !w.mode.atOnce {
		w.change(node, "postrouting", func(now *trace.Tuple) { now.Mark = 0 })
	}
	w.change(node, "postrouting", func(now *trace.Tuple) {
		now.Src, now.Mark, now.State = flow.Reply.Dst, 0, "NEW,SNAT"+w.mode.dnat()
	})
}

// accepted is the mark that policy-calico gives to the packets that the policies of a pod accept.
const accepted = 0x10000

// accept works out the marks of policy-calico: the chain of the client's pod and that of the server's pod first take the
// mark away, and then give it. Packets to a relay do not get there: its rules accept them before. What IPVS has
// translated passes output, as if the node were the sender (ip_vs_nat_xmit, in the kernel's
// net/netfilter/ipvs/ip_vs_xmit.c).
func (w *wanted) accept(node string) {
	hook := "forward"
	if node == w.kind.at && w.mode.virtual {
		hook = "output"
	}
	if node == w.kind.at && w.mode.relays {
		return
	}
	network := w.lab.standing.Cluster().Lab()
	server, _, _ := strings.Cut(w.kind.server, ":")
	for _, name := range []string{w.kind.path[0], "default/" + server} {
		p := network.Pod(name)
		if p == nil || p.Node().Name() != node {
			continue
		}
		w.change(node, hook, func(now *trace.Tuple) { now.Mark &^= accepted })
		if node != w.kind.end {
			w.change(node, hook, func(now *trace.Tuple) { now.Mark |= accepted })
		}
	}
}

// followReply works out the changes of the packet that answers the first one. Only the node that has translated that
// one translates it back.
func (w *wanted) followReply(first observe.Tuple) {
	path := w.passed
	w.answer, w.passed, w.changes = true, nil, nil
	w.now = trace.Tuple{Src: first.Dst, Dst: first.Src}
	if f := w.evidence.flow(w.kind.at, first); f != nil {
		w.now = trace.Tuple{Src: f.Reply.Src, Dst: f.Reply.Dst}
	}
	for i, place := range slices.Backward(path) {
		w.passed = append(w.passed, place)
		if !w.isNode(place) {
			continue
		}
		begin, end := "prerouting", "postrouting"
		if i == len(path)-1 && w.mode.relays {
			begin = "output"
		}
		if w.mode.virtual {
			end = "forward"
		}
		if i == 0 && !w.mode.relays {
			end = "input"
		}
		w.now.State = ""
		state := "ESTABLISHED"
		if place == w.kind.at && w.kind.masquerade && !w.mode.relays {
			state += ",SNAT"
		}
		if place == w.kind.at {
			state += w.mode.dnat()
		}
		w.change(place, begin, func(now *trace.Tuple) { now.State = state })
		if place == w.kind.at {
			w.change(place, begin, func(now *trace.Tuple) { now.Dst = first.Src })
			w.change(place, end, func(now *trace.Tuple) { now.Src = first.Dst })
		}
	}
}

// followError works out the changes of the ICMP error that refuses the first packet. The node that has translated the
// packet translates the error, and what it quotes.
func (w *wanted) followError(first observe.Tuple) {
	path, now := w.passed, first
	if f := w.evidence.flow(w.kind.at, first); f != nil {
		now = reverse(f.Reply)
	}
	var from netip.Addr
	for _, p := range w.evidence.errors(path[len(path)-1], now) {
		from = p.inner.Src.Addr()
	}
	if w.kind.end != "" {
		w.isOf(w.kind.end, from)
	} else if server := w.lab.podAddr(w.t, w.kind.server, w.family).Addr(); from != server {
		w.t.Errorf("the ICMP error is from %s, want %s", from, server)
	}
	w.isError, w.passed, w.changes = true, nil, nil
	w.now = trace.Tuple{Src: netip.AddrPortFrom(from, 0), Dst: netip.AddrPortFrom(now.Src.Addr(), 0), Quoted: &trace.Quoted{Src: now.Src, Dst: now.Dst}}
	for _, place := range slices.Backward(path) {
		w.passed = append(w.passed, place)
		if !w.isNode(place) || place == w.kind.end { // an error from here belongs to the flow from its beginning
			continue
		}
		w.now.State = ""
		state := "RELATED"
		if place == w.kind.at && w.kind.masquerade {
			state += ",SNAT"
		}
		if place == w.kind.at {
			state += w.mode.dnat()
		}
		w.change(place, "prerouting", func(now *trace.Tuple) { now.State = state })
		if place == w.kind.at {
			w.change(place, "prerouting", func(now *trace.Tuple) {
				now.Dst, now.Quoted = netip.AddrPortFrom(first.Src.Addr(), 0), &trace.Quoted{Src: first.Src, Dst: now.Quoted.Dst}
			})
			end := "postrouting"
			if w.mode.virtual {
				end = "forward"
			}
			w.change(place, end, func(now *trace.Tuple) {
				now.Src, now.Quoted = netip.AddrPortFrom(first.Dst.Addr(), 0), &trace.Quoted{Src: first.Src, Dst: first.Dst}
			})
		}
	}
}

// followRelayed works out the changes of the first packet of the connection that a relay has made, and returns its
// addresses: those of the packet that came to the server.
func (w *wanted) followRelayed() observe.Tuple {
	pod, _, _ := strings.Cut(w.kind.server, ":")
	to := w.lab.podAddr(w.t, w.kind.server, w.family)
	var first observe.Tuple
	for _, p := range w.evidence.frames["default/"+pod] {
		if p.inner.Dst == to && p.inner.Flags == "SYN" {
			first = observe.Tuple{Src: p.inner.Src, Dst: p.inner.Dst}
		}
	}
	w.isOf(w.kind.at, first.Src.Addr())
	i := slices.Index(w.kind.path, w.kind.at)
	w.answer, w.passed, w.changes = false, nil, nil
	w.now = trace.Tuple{Src: first.Src, Dst: first.Dst}
	for _, node := range w.kind.path[i:] {
		begin := "prerouting"
		if node == w.kind.at {
			begin = "output"
		}
		w.passed = append(w.passed, node)
		if !w.isNode(node) {
			continue
		}
		w.now.State, w.now.Mark = "", 0
		w.change(node, begin, func(now *trace.Tuple) { now.State = "NEW" })
		if w.lab.calico {
			w.accept(node)
		}
	}
	return first
}

// isOf wants an address to be one of a node.
func (w *wanted) isOf(node string, a netip.Addr) {
	addrs, err := w.lab.standing.Cluster().Lab().Node(node).LocalAddrs()
	Must(w.t, err)
	if !slices.Contains(addrs, a) {
		w.t.Errorf("%s is no address of %s", a, node)
	}
}

// change notes a change, if it is one.
func (w *wanted) change(node, hook string, f func(*trace.Tuple)) {
	before := w.now
	f(&w.now)
	if line("", "", w.now) != line("", "", before) {
		w.changes = append(w.changes, line(node, hook, w.now))
	}
}
