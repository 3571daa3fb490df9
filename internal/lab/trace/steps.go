// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"slices"

	"github.com/viplab/viplab/internal/lab/ruleset"
	"github.com/viplab/viplab/lab/observe"
)

// steps returns the way of a packet through a namespace, the packet as it came, and the hops that it still had.
func (p *spot) steps(k key) (steps []Step, start Tuple, ttl uint8) {
	in, bridged, out, ttl := p.devices(k)
	events := p.events(k)
	switch {
	case len(in) > 0:
		start = in[0].tuple
	case len(events) > 0:
		start = Tuple{Src: events[0].src, Dst: events[0].dst}
	case len(out) > 0:
		start = out[0].tuple
	default:
		return nil, start, 0
	}
	b := builder{spot: p, now: start}
	b.pass(in)
	arriving := true
	for _, e := range events {
		if arriving && e.hook != "prerouting" {
			b.pass(bridged)
			arriving = false
		}
		b.add(e)
	}
	if arriving {
		b.pass(bridged)
	}
	b.pass(out)
	return b.steps, start, ttl
}

// passage is a packet at a device.
type passage struct {
	step  Step
	tuple Tuple
}

// devices returns where a packet came in, where bridges took it in, which is after prerouting if a bridge calls
// iptables, and where it went out.
func (p *spot) devices(k key) (in, bridged, out []passage, ttl uint8) {
	seen := map[string]bool{} // retransmissions take the same way
	for _, f := range p.frames() {
		inner := f.Innermost()
		if !k.is(inner) {
			continue
		}
		direction := "in"
		if f.Direction == observe.Out {
			direction = "out"
		}
		// A port of a bridge takes packets to other link addresses; other devices ignore them.
		if seen[f.Device+direction] || f.Direction == observe.Other && !p.isPort(f.Device) {
			continue
		}
		seen[f.Device+direction] = true
		ttl = max(ttl, inner.TTL)
		one := passage{
			Step{
				Place: p.ns.Name(), Device: f.Device, Direction: direction, Packet: f.Packet.String(),
				Outer: outer(f.Packet), Frame: frame(f.Frame),
			},
			Tuple{Src: inner.Src, Dst: inner.Dst},
		}
		switch {
		case direction == "out":
			out = append(out, one)
		case len(in) > 0 && p.isBridge(f.Device):
			bridged = append(bridged, one)
		default:
			in = append(in, one)
		}
	}
	return in, bridged, out, ttl
}

// outer returns the headers around the innermost packet.
func outer(p *observe.Packet) (all []Outer) {
	for ; p.Inner != nil; p = p.Inner {
		all = append(all, Outer{p.Proto, p.Src, p.Dst, p.TTL})
	}
	return all
}

// frameBytes is how many bytes of a packet a Frame has: all headers, also those of tunnels, and some of the payload.
const frameBytes = 256

func frame(f observe.Frame) *Frame {
	return &Frame{At: f.At, Ethernet: f.Ethernet, Data: f.Data[:min(len(f.Data), frameBytes)], Length: len(f.Data)}
}

func (p *spot) isBridge(device string) bool {
	l, err := p.ns.Netlink().LinkByName(device)
	return err == nil && l.Type() == "bridge"
}

// isPort reports whether a device is a port of a bridge.
func (p *spot) isPort(device string) bool {
	l, err := p.ns.Netlink().LinkByName(device)
	return err == nil && l.Attrs().MasterIndex != 0
}

// builder makes steps from events.
type builder struct {
	*spot
	now   Tuple
	steps []Step
	last  *event // with a step, since the last probe
}

// pass adds devices. What the packet has besides its addresses stays.
func (b *builder) pass(devices []passage) {
	for _, d := range devices {
		d.step.Before = d.tuple
		d.step.Before.Mark, d.step.Before.State = b.now.Mark, b.now.State
		b.steps = append(b.steps, d.step)
	}
}

// add adds the step of an event, and finds which step has changed the packet.
func (b *builder) add(e event) {
	next := b.now
	if e.src.IsValid() {
		next.Src, next.Dst, next.State = e.src, e.dst, e.state
		if e.state == "" {
			next.State = b.now.State // legacy tables do not tell it
		}
	}
	if !e.after || e.step == nil {
		next.Mark = e.mark
	}
	b.change(next, e)
	if e.step != nil {
		e.step.Before = b.now
		b.steps = append(b.steps, *e.step)
		b.last = &e
		next.Mark = e.mark
		if e.after {
			b.change(next, e)
		}
		return
	}
	b.last = nil
}

// change notes that the packet has changed before an event, and by which step: the rule before it, or the kernel.
func (b *builder) change(next Tuple, e event) {
	changed := differences(b.now, next)
	if len(changed) == 0 {
		return
	}
	if b.last == nil {
		s := b.kernel(e)
		s.Before = b.now
		b.steps = append(b.steps, s)
	}
	s := &b.steps[len(b.steps)-1]
	s.After = &next
	for _, c := range changed {
		if !slices.Contains(s.Changed, c) {
			s.Changed = append(s.Changed, c)
		}
	}
	b.now = next
}

// kernel returns the part of the kernel that works between the probe before and the one that an event is of.
func (b *builder) kernel(e event) Step {
	s := Step{
		Place: b.ns.Name(), Hook: e.hook, Priority: e.priority - 1,
		Kernel: "connection tracking translates it as it has translated the flow's first packet",
	}
	if e.hook == "output" && e.priority == first {
		return b.handover()
	}
	family := ruleset.IP
	if b.now.Src.Addr().Is6() {
		family = ruleset.IP6
	}
	for _, at := range b.rules.At(e.hook, family) {
		if at.Table == nil && at.Priority == s.Priority {
			s.Kernel = at.Kernel
		}
	}
	return s
}

// ipvsInput is the priority of IPVS at input (ip_vs_ops4 in the kernel's net/netfilter/ipvs/ip_vs_core.c).
const ipvsInput = 98

// handover returns what gives a packet that came in to output: IPVS, which does so behind input, or a program.
func (b *builder) handover() Step {
	s := Step{Place: b.ns.Name(), Hook: "input", Kernel: "a program on this node takes it and sends it on"}
	if len(b.rules.Servers) > 0 {
		s.Priority, s.Kernel = ipvsInput, "IPVS sends it to a real server of the virtual server"
	}
	return s
}

// differences names what differs between two tuples, in the words of the line that shows them.
func differences(a, b Tuple) (names []string) {
	for name, differs := range map[string]bool{
		"sourceIP": a.Src.Addr() != b.Src.Addr(), "sourcePort": a.Src.Port() != b.Src.Port(),
		"destinationIP": a.Dst.Addr() != b.Dst.Addr(), "destinationPort": a.Dst.Port() != b.Dst.Port(),
		"mark": a.Mark != b.Mark, "state": a.State != b.State,
	} {
		if differs {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
