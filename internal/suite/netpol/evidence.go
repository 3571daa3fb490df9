// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/viplab/viplab/lab/observe"
)

// evidence shows where unanswered requests were dropped.
type evidence interface {
	// drain takes the evidence since the last call. classify returns the mark of a request, given its flow before and
	// after translation: Dropped, Arrived, or Lost without evidence.
	drain() (classify func(sent, delivered flowKey) Mark, err error)
}

// flowKey distinguishes the packets of one cell from all others.
type flowKey struct {
	proto    string
	from, to netip.AddrPort
}

func (k flowKey) reply() flowKey { return flowKey{k.proto, k.to, k.from} }

// dropLog is the evidence for enforcers that log packets before they drop them.
type dropLog []*observe.LogGroups

// groups are the NFLOG groups of packets that ingress and egress rules deny.
var groups = []uint16{1, 2}

func (d dropLog) drain() (func(sent, delivered flowKey) Mark, error) {
	dropped := map[flowKey]bool{}
	for _, l := range d {
		packets, err := l.Drain()
		if err != nil {
			return nil, err
		}
		for _, p := range packets {
			if !strings.HasPrefix(p.Prefix, "DPI|") && !strings.HasPrefix(p.Prefix, "DPE|") {
				continue
			}
			packet, err := observe.DecodeIP(p.Packet)
			if err != nil {
				return nil, fmt.Errorf("a logged packet: %w", err)
			}
			dropped[flowKey{packet.Proto, packet.Src, packet.Dst}] = true
		}
	}
	return func(sent, delivered flowKey) Mark {
		switch {
		case dropped[sent], dropped[delivered]:
			return Dropped
		case dropped[sent.reply()], dropped[delivered.reply()]:
			return Arrived
		}
		return Lost
	}, nil
}
