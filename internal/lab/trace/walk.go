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
