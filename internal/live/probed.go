// SPDX-License-Identifier: Apache-2.0

package live

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"text/tabwriter"

	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/traffic"
)

// Probed is what became of a request.
type Probed struct {
	From    string         `json:"from"`
	Source  netip.AddrPort `json:"source"`  // from which the client sent
	To      string         `json:"to"`      // the Service, pod or machine, or the address if it has no name
	Address netip.AddrPort `json:"address"` // to which the client sent
	Proto   string         `json:"proto"`
	// Outcome is the name of a traffic.Outcome, Detail what the client saw, in words.
	Outcome string `json:"outcome"`
	Detail  string `json:"detail"`
	// Server answered at the address Local, and saw the client as Seen. They are empty if no echo server answered.
	Server   string         `json:"server,omitempty"`
	Local    netip.AddrPort `json:"local,omitzero"`
	Seen     netip.AddrPort `json:"seen,omitzero"`
	SeenName string         `json:"seenName,omitempty"` // whose address Seen is
	// Path is where the first packet was seen, in its order.
	Path []Passage `json:"path"`
}

// Passage is a packet at a device.
type Passage struct {
	Place       string         `json:"place"`
	Device      string         `json:"device"`
	Direction   string         `json:"direction"` // "in" or "out"
	Source      netip.AddrPort `json:"source"`    // of the innermost packet, without tunnels
	Destination netip.AddrPort `json:"destination"`
	Packet      string         `json:"packet"`
	// SourceNow and DestinationNow name the new address where it differs from the one of the passage before.
	SourceNow      string `json:"sourceNow,omitempty"`
	DestinationNow string `json:"destinationNow,omitempty"`
}

// Answered reports whether a program has answered.
func (p *Probed) Answered() bool {
	return p.Outcome == traffic.Reply.String() || p.Outcome == traffic.Garbled.String()
}

// probed describes an answer and the path of the first packet.
func probed(p traffic.Probe, to *target, a traffic.Answer, path []sighting, names map[netip.Addr]string) *Probed {
	out := &Probed{
		From: p.From.Name(), Source: a.Source, To: to.name, Address: p.To, Proto: p.Proto,
		Outcome: a.Outcome.String(), Detail: verdict(a, names), Path: passages(path, names),
	}
	if a.Outcome == traffic.Reply {
		out.Server, out.Local, out.Seen, out.SeenName = a.Server, a.Local, a.Peer, names[a.Peer.Addr()]
	}
	return out
}

// verdict says what became of a probe.
func verdict(a traffic.Answer, names map[netip.Addr]string) string {
	switch a.Outcome {
	case traffic.Reply:
		return fmt.Sprintf("Reply by %s at %s, which saw %s (%s)", a.Server, a.Local, a.Peer,
			cmp.Or(names[a.Peer.Addr()], "unknown"))
	case traffic.Garbled:
		return "Answer of a program that is no echo server"
	}
	return a.String()
}

// passages describes a path, and what has changed on the way.
func passages(path []sighting, names map[netip.Addr]string) []Passage {
	out := []Passage{}
	var last observe.Tuple
	for _, s := range path {
		inner := s.Innermost()
		now := Passage{
			Place: s.place, Device: s.frame.Device, Direction: s.frame.Direction.String(), Source: inner.Src,
			Destination: inner.Dst, Packet: describe(s.Packet),
		}
		if s.frame.Direction == observe.Other { // a port of a bridge takes packets to the bridge's address
			now.Direction = observe.In.String()
		}
		if last.Dst.IsValid() && inner.Dst != last.Dst {
			now.DestinationNow = cmp.Or(names[inner.Dst.Addr()], inner.Dst.Addr().String())
		}
		if last.Src.IsValid() && inner.Src != last.Src {
			now.SourceNow = cmp.Or(names[inner.Src.Addr()], inner.Src.Addr().String())
		}
		last = observe.Tuple{Src: inner.Src, Dst: inner.Dst}
		out = append(out, now)
	}
	return out
}

// Print prints the outcome, and a line for each device that the first packet has passed.
func (p *Probed) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s -> %s %s/%s\n%s\n", p.From, p.Source, p.To, p.Address, p.Proto, p.Detail)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, at := range p.Path {
		change := ""
		if at.DestinationNow != "" {
			change += "  destination now " + at.DestinationNow
		}
		if at.SourceNow != "" {
			change += "  source now " + at.SourceNow
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\n", at.Place, at.Device, at.Direction, at.Packet, change)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}
