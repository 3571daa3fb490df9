// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/viplab/viplab/lab/observe"
)

// walk returns the way of a packet. The sender is the first place on the way, or the last of an answer. Time orders
// only what one place has seen: visits are in the order of the hops that the packet still had.
func (t *Tracer) walk(k key, sender string) *Walk {
	var all []visit
	for _, p := range t.spots {
		visits := p.visits(k)
		if len(visits) > 0 && p.ns.Name() == sender && k.role == asks {
			visits[0].local = true
			visits[0].ttl = math.MaxUint8
		}
		all = append(all, visits...)
	}
	slices.SortStableFunc(all, func(a, b visit) int {
		return cmp.Or(-cmp.Compare(a.ttl, b.ttl), -compareBools(a.local, b.local), a.at.Compare(b.at),
			cmp.Compare(a.place, b.place))
	})
	w := &Walk{key: k}
	for i, v := range all {
		if i == 0 {
			w.First = v.start
		}
		w.Steps, w.stage = append(w.Steps, v.steps...), v.stage
	}
	return w
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
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
	return t.walk(k.answer(t.walk(k, sender).tuples()), sender), nil
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
			if bytes.Equal(keyOf(inner).mark, first.key.mark) {
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
			inner := f.Innermost()
			if k := keyOf(inner); inner.Proto == proto && inner.Src == source && inner.Dst == to && k.is(inner) {
				return k, nil
			}
		}
		for _, r := range p.records {
			if r.message == nil || r.message.network == nil {
				continue
			}
			packet, err := observe.DecodeIP(slices.Concat(r.message.network, r.message.transport))
			if err == nil && packet.Proto == proto && packet.Src == source && packet.Dst == to {
				return keyOf(packet), nil
			}
		}
	}
	return key{}, fmt.Errorf("%s has not sent a packet from %s to %s", sender, source, to)
}

// tuples returns what the packet has looked like.
func (w *Walk) tuples() []Tuple {
	all := []Tuple{w.First}
	for _, s := range w.Steps {
		all = append(all, s.Before)
		if s.After != nil {
			all = append(all, *s.After)
		}
	}
	return all
}
