// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/viplab/viplab/lab/observe"
)

// Tuple is what rules look at in a packet.
type Tuple struct {
	Src  netip.AddrPort `json:"src"`
	Dst  netip.AddrPort `json:"dst"`
	Mark uint32         `json:"mark"`
	// State is that of the connection in connection tracking, such as "NEW,DNAT". It is empty if the packet is not
	// tracked yet, or if the kernel does not tell (before Linux 6.17).
	State string `json:"state"`
}

// Step is something that a packet passes: a device, a rule, or a part of the kernel.
type Step struct {
	Place string `json:"place"`
	// Device and Direction ("in" or "out") are those of a device. Packet is what it saw, with the outer headers of a
	// tunnel.
	Device    string `json:"device,omitempty"`
	Direction string `json:"direction,omitempty"`
	Packet    string `json:"packet,omitempty"`
	// Hook and Priority are where a rule or a part of the kernel works.
	Hook     string `json:"hook,omitempty"`
	Priority int    `json:"priority,omitempty"`
	// Backend, Family, Table, Chain and Rule are those of a rule, as its owner prints it. Rule is empty for the policy of
	// the chain. About is the annotation.
	Backend string `json:"backend,omitempty"`
	Family  string `json:"family,omitempty"`
	Table   string `json:"table,omitempty"`
	Chain   string `json:"chain,omitempty"`
	Rule    string `json:"rule,omitempty"`
	About   string `json:"about,omitempty"`
	Verdict string `json:"verdict,omitempty"`
	// Kernel names a part of the kernel.
	Kernel string `json:"kernel,omitempty"`
	// After is the packet after the step, if the step has changed it. Changed names what.
	After   *Tuple   `json:"after,omitempty"`
	Changed []string `json:"changed,omitempty"`
}

// Walk is the way of one packet. The zero value is that of a packet that nothing has seen.
type Walk struct {
	First Tuple  `json:"first"`
	Steps []Step `json:"steps"`
	key   key
}

// Dropped returns the step that ended the packet, nil if no rule did.
func (w *Walk) Dropped() *Step {
	for i := range w.Steps {
		if w.Steps[i].Verdict == "drop" {
			return &w.Steps[i]
		}
	}
	return nil
}

// walk returns the way of a packet. The sender is the first place on the way, or the last of an answer. Time orders
// only what one place has seen: the others are in the order of the hops that the packet still had.
func (t *Tracer) walk(k key, sender string) *Walk {
	type visit struct {
		steps []Step
		rank  int
	}
	var visits []visit
	w := &Walk{key: k}
	for _, p := range t.spots {
		steps, start, ttl := p.steps(k)
		if len(steps) == 0 {
			continue
		}
		rank := -int(ttl)
		if p.ns.Name() == sender && k.reply {
			rank = 1 << 8
		} else if p.ns.Name() == sender {
			rank = -1 << 8
		}
		if len(visits) == 0 || rank < slices.MinFunc(visits, func(a, b visit) int { return a.rank - b.rank }).rank {
			w.First = start
		}
		visits = append(visits, visit{steps, rank})
	}
	slices.SortStableFunc(visits, func(a, b visit) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.steps[0].Place, b.steps[0].Place))
	})
	for _, v := range visits {
		w.Steps = append(w.Steps, v.steps...)
	}
	return w
}

// Walk returns the way of the first packet of an exchange. Source and to are its addresses at the sender.
func (t *Tracer) Walk(sender, proto string, source, to netip.AddrPort) (*Walk, error) {
	k, err := t.find(sender, proto, source, to)
	if err != nil {
		return nil, err
	}
	return t.walk(k, sender), nil
}

// Reply returns the way of the packet that answers the first one. It may have no steps.
func (t *Tracer) Reply(sender, proto string, source, to netip.AddrPort) (*Walk, error) {
	k, err := t.find(sender, proto, source, to)
	if err != nil {
		return nil, err
	}
	k.reply = true
	return t.walk(k, sender), nil
}

// Relayed returns the way of the TCP connection that a relay has made for the first one, with the addresses that the
// server saw. It returns nil if that is the first connection itself.
func (t *Tracer) Relayed(first *Walk, source, to netip.AddrPort) *Walk {
	for _, p := range t.spots {
		for _, f := range p.frames() {
			inner := f.Innermost()
			if inner.Proto != "tcp" || inner.Flags != "SYN" || inner.Src != source || inner.Dst != to {
				continue
			}
			if keyOf(inner).seq == first.key.seq {
				return nil
			}
			return t.walk(keyOf(inner), "")
		}
	}
	return nil
}

// find finds the first packet at the sender: at its devices, or in the rules of a node, which may have translated it
// before it reached a device.
func (t *Tracer) find(sender, proto string, source, to netip.AddrPort) (key, error) {
	for _, p := range t.spots {
		if p.ns.Name() != sender {
			continue
		}
		for _, f := range p.frames() {
			if inner := f.Innermost(); inner.Proto == proto && inner.Src == source && inner.Dst == to {
				return keyOf(inner), nil
			}
		}
		for _, m := range p.messages {
			packet, err := observe.DecodeIP(append(bytes.Clone(m.network), m.transport...))
			if err == nil && packet.Proto == proto && packet.Src == source && packet.Dst == to {
				return keyOfHeader(packet, m.transport), nil
			}
		}
	}
	return key{}, fmt.Errorf("%s has not sent a packet from %s to %s", sender, source, to)
}

// sighting is a packet at a device.
type sighting struct {
	observe.Frame
	*observe.Packet
}

// frames returns the IP packets that a namespace's devices saw, by time.
func (p *spot) frames() []sighting {
	var all []sighting
	for _, f := range p.capture.Packets() {
		if decoded, err := observe.Decode(f); err == nil {
			all = append(all, sighting{f, decoded})
		}
	}
	slices.SortStableFunc(all, func(a, b sighting) int { return a.At.Compare(b.At) })
	return all
}
