// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"slices"
	"strings"
	"time"

	"github.com/viplab/viplab/internal/lab/ruleset"
)

// visit is a packet's stay at a place.
type visit struct {
	place string
	start Tuple
	ttl   uint8     // the hops that the packet still had
	at    time.Time // by the clock of the devices, zero if none has seen it
	local bool      // the packet comes from here
	stage stage
	steps []Step
}

// visits returns a packet's stays in a namespace, in order.
func (p *spot) visits(k key) []visit {
	b := builder{spot: p}
	runs := p.runs(k)
	// take adds the next run if it goes in that direction.
	take := func(out bool, add func(run)) {
		if len(runs) > 0 && runs[0].out == out {
			add(runs[0])
			runs = runs[1:]
		}
	}
	for _, pass := range p.read(k) {
		for pass.hook == "output" && len(runs) > 0 && !runs[0].out && runs[0].ttl() > pass.ttl {
			take(false, func(r run) { b.arrive(r); b.devices(r.frames) }) // something else than a rule has taken it
		}
		var bridged []sighting
		if pass.hook == "prerouting" {
			take(false, func(r run) {
				var before []sighting
				before, bridged = p.inBridge(r)
				b.arrive(r)
				b.devices(before)
			})
		}
		b.enter(pass)
		leaves := false
		for _, e := range pass.events {
			if e.hook != "prerouting" {
				b.devices(bridged)
				bridged = nil
			}
			if e.hook == "postrouting" && !leaves && len(runs) > 0 && runs[0].out {
				n := runs[0].before(b.now)
				b.devices(runs[0].frames[:n])
				runs[0].frames = runs[0].frames[n:]
			}
			b.add(e)
			b.visit().stage = stages[e.hook]
			leaves = leaves || e.hook == "postrouting"
		}
		b.devices(bridged)
		b.last = nil
		if leaves {
			take(true, func(r run) { b.leave(r) })
		}
	}
	for _, r := range runs {
		if r.out {
			b.leave(r)
		} else {
			b.arrive(r)
			b.devices(r.frames)
		}
	}
	return b.visits
}

// builder makes steps from devices and events.
type builder struct {
	*spot
	visits []visit
	now    Tuple
	last   *event // with a step, since the last probe
}

// visit returns the present visit.
func (b *builder) visit() *visit { return &b.visits[len(b.visits)-1] }

// begin begins a visit.
func (b *builder) begin(v visit) {
	v.place = b.ns.Name()
	b.visits = append(b.visits, v)
	b.now, b.last = v.start, nil
}

// arrive begins a visit with the first device that a packet comes in by. Through the loopback device it comes back.
func (b *builder) arrive(r run) {
	f := r.frames[0]
	if f.Device == "lo" && len(b.visits) > 0 {
		return
	}
	b.begin(visit{start: b.device(f).Before, ttl: r.ttl(), at: f.At})
}

// enter begins a visit with a pass whose packet is from here.
func (b *builder) enter(p pass) {
	if len(b.visits) > 0 && (p.hook != "output" || b.visit().ttl >= p.ttl) || len(p.events) == 0 {
		return
	}
	e := p.events[0]
	start := Tuple{Src: e.src, Dst: e.dst, Mark: e.mark, State: strings.Join(e.states, ","), Quoted: e.quoted}
	b.begin(visit{start: start, ttl: p.ttl, local: p.hook == "output"})
}

// leave adds the devices that a packet goes out by.
func (b *builder) leave(r run) {
	if len(b.visits) == 0 {
		b.begin(visit{start: b.device(r.frames[0]).Before, ttl: r.ttl(), at: r.frames[0].At, local: true})
	}
	b.devices(r.frames)
	b.visit().stage = devices
}

// stages are how far packets have come that a hook has seen.
var stages = map[string]stage{
	"prerouting": routed, "forward": routed, "input": received, "output": received, "postrouting": postrouted,
}

// devices adds devices. What the packet has besides its addresses stays.
func (b *builder) devices(frames []sighting) {
	for _, f := range frames {
		s := b.device(f)
		if v := b.visit(); v.at.IsZero() {
			v.at = f.At
		}
		s.Before.Mark, s.Before.State = b.now.Mark, b.now.State
		if b.rules != nil && (s.Before.Src.Addr() != b.now.Src.Addr() || s.Before.Dst.Addr() != b.now.Dst.Addr()) {
			b.aside(s.Before)
		}
		b.visit().steps = append(b.visit().steps, s)
	}
}

// aside is what has changed a packet between the last probe and a device.
const aside = "something that netfilter does not see changes it, such as a program of tc (eBPF)"

func (b *builder) aside(now Tuple) {
	s := Step{Place: b.ns.Name(), Kernel: aside, Before: b.now, After: &now, Changed: differences(b.now, now)}
	b.visit().steps = append(b.visit().steps, s)
	b.now = now
}

// add adds the step of an event, and finds which step has changed the packet.
func (b *builder) add(e event) {
	next := b.now
	if e.src.IsValid() {
		next.Src, next.Dst = e.src, e.dst
	}
	if e.states != nil {
		next.State = strings.Join(e.states, ",")
	}
	if e.quoted != nil {
		next.Quoted = e.quoted
	}
	if !e.after || e.step == nil {
		next.Mark = e.mark
	}
	b.change(next, e)
	if e.step == nil {
		b.last = nil
		return
	}
	e.step.Before = b.now
	b.visit().steps = append(b.visit().steps, *e.step)
	b.last = &e
	if e.after {
		next.Mark = e.mark
		b.change(next, e)
	}
}

// change notes that the packet has changed before an event, and by which step: the rule before it, or the kernel.
func (b *builder) change(next Tuple, e event) {
	changed := differences(b.now, next)
	if len(changed) == 0 {
		return
	}
	v := b.visit()
	if b.last == nil {
		s := b.kernel(e)
		s.Before = b.now
		v.steps = append(v.steps, s)
	}
	s := &v.steps[len(v.steps)-1]
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

// ipvsInput and ipvsOutput are the priorities of IPVS for what is sent to virtual servers: at input, and at output for
// packets of the node itself (ip_vs_ops4 in the kernel's net/netfilter/ipvs/ip_vs_core.c).
const ipvsInput, ipvsOutput = 99, -98

// handover returns what gives a packet to output again: IPVS, which does so behind input, or a program.
func (b *builder) handover() Step {
	s := Step{Place: b.ns.Name(), Hook: "input", Kernel: "a program on this node takes it and sends it on"}
	if len(b.rules.Servers) > 0 {
		s.Priority, s.Kernel = ipvsInput, "IPVS sends it to a real server of the virtual server"
		if b.visit().local {
			s.Hook, s.Priority = "output", ipvsOutput
		}
	}
	for _, c := range b.ipvs {
		if c.from == b.now.Src && c.to == b.now.Dst {
			s.Flow = c.String()
		}
	}
	return s
}

// differences names what differs between two tuples, in the words of the line that shows them.
func differences(a, b Tuple) (names []string) {
	quotedA, quotedB := Quoted{}, Quoted{}
	if a.Quoted != nil && b.Quoted != nil {
		quotedA, quotedB = *a.Quoted, *b.Quoted
	}
	for name, differs := range map[string]bool{
		"sourceIP": a.Src.Addr() != b.Src.Addr(), "sourcePort": a.Src.Port() != b.Src.Port(),
		"destinationIP": a.Dst.Addr() != b.Dst.Addr(), "destinationPort": a.Dst.Port() != b.Dst.Port(),
		"mark": a.Mark != b.Mark, "state": a.State != b.State,
		"quotedSource": quotedA.Src != quotedB.Src, "quotedDestination": quotedA.Dst != quotedB.Dst,
	} {
		if differs {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
