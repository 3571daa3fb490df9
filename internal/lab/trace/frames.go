// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/binary"
	"net/netip"

	"github.com/viplab/viplab/lab/observe"
)

// sighting is a packet at a device.
type sighting struct {
	observe.Frame
	*observe.Packet
}

// frames returns the IP packets that a namespace's devices saw until the end. Those of one packet are in the order of
// its way, which the time stamps need not be: the kernel stamps packets of a sender late.
func (p *spot) frames() []sighting {
	p.decode.Do(func() {
		for _, f := range p.capture.Packets() {
			if decoded, err := observe.Decode(f); err == nil {
				p.decoded = append(p.decoded, sighting{f, decoded})
			}
		}
	})
	return p.decoded
}

// run are the devices that a packet passes one after the other, on its way in or out: a port and its bridge, a tunnel
// and what carries it.
type run struct {
	out    bool
	frames []sighting
}

// runs returns a packet's runs through a namespace. Retransmissions take the same way.
func (p *spot) runs(k key) (all []run) {
	type passage struct {
		device string
		out    bool
		ttl    uint8
		part   fragment
	}
	seen, parts := map[passage]bool{}, map[fragment]bool{}
	for _, f := range p.frames() {
		inner := f.Innermost()
		part := fragmentOf(inner)
		whole := part.of()
		if !k.is(inner) && (!inner.Fragment || !parts[whole]) {
			continue
		}
		parts[whole] = parts[whole] || inner.Fragment
		out := f.Direction == observe.Out
		at := passage{f.Device, out, inner.TTL, part}
		// A port of a bridge takes packets to other link addresses; other devices ignore them.
		if seen[at] || f.Direction == observe.Other && !p.isPort(f.Device) {
			continue
		}
		seen[at] = true
		if n := len(all); n == 0 || all[n-1].out != out || !out && inner.TTL != all[n-1].ttl() {
			all = append(all, run{out: out})
		}
		r := &all[len(all)-1]
		r.frames = append(r.frames, f)
	}
	return all
}

// fragment is what tells a fragment from others: the packet that it is of, and where it belongs there.
type fragment struct {
	src, dst netip.Addr
	id       uint32
	offset   uint16
}

// of returns what all fragments of a packet share.
func (f fragment) of() fragment {
	f.offset = 0
	return f
}

// fragmentOf returns the zero value for a packet that is whole (RFC 791 3.1, RFC 8200 4.5).
func fragmentOf(p *observe.Packet) fragment {
	f := fragment{src: p.Src.Addr(), dst: p.Dst.Addr()}
	switch {
	case !p.Fragment:
		return fragment{}
	case p.Raw[0]>>4 == 4:
		f.id, f.offset = uint32(binary.BigEndian.Uint16(p.Raw[4:])), binary.BigEndian.Uint16(p.Raw[6:])&0x1fff
	case len(p.Raw) >= 48:
		f.id, f.offset = binary.BigEndian.Uint32(p.Raw[44:]), binary.BigEndian.Uint16(p.Raw[42:])>>3
	}
	return f
}

// ttl returns the hops that the packet still has.
func (r run) ttl() uint8 { return r.frames[0].Innermost().TTL }

// before returns how many devices of a run out a packet passes before postrouting changes it: a bridge that sends a
// packet back to the port that it came by does postrouting itself, on its way to the port.
func (r run) before(now Tuple) (n int) {
	unchanged := func(f sighting) bool {
		inner := f.Innermost()
		return inner.Src == now.Src && inner.Dst == now.Dst
	}
	if unchanged(r.frames[len(r.frames)-1]) {
		return 0
	}
	for unchanged(r.frames[n]) {
		n++
	}
	return n
}

// inBridge splits a run at the bridge whose port has taken the packet in: that is after prerouting, if the bridge calls
// iptables.
func (p *spot) inBridge(r run) (before, after []sighting) {
	for i, f := range r.frames {
		if i > 0 && p.isBridge(f.Device) {
			return r.frames[:i], r.frames[i:]
		}
	}
	return r.frames, nil
}

// device returns a device as a step.
func (p *spot) device(f sighting) Step {
	direction := "in"
	if f.Direction == observe.Out {
		direction = "out"
	}
	inner := f.Innermost()
	return Step{
		Place: p.ns.Name(), Device: f.Device, Direction: direction, Packet: f.Packet.String(), Outer: outer(f.Packet),
		Frame:  frame(f.Frame),
		Before: Tuple{Src: inner.Src, Dst: inner.Dst, Quoted: quotedIn(inner)},
	}
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
