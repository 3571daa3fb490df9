// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/observe"
)

// evidence tells what has become of a packet that nobody answered.
type evidence interface {
	// collect takes what has been seen since it was last asked, and returns what that says of a request, as it was sent
	// and as its target would see it: Dropped, Arrived, or Lost if it says nothing.
	collect() (func(sent, delivered flowKey) Mark, error)
	close() error
}

// flowKey is what tells the packets of one cell from all others.
type flowKey struct {
	proto    string
	from, to netip.AddrPort
}

// reply is the way back.
func (k flowKey) reply() flowKey { return flowKey{k.proto, k.to, k.from} }

// dropLog is the evidence on enforcers that log what they drop, before they do.
type dropLog []*observe.LogGroups

// groups are the NFLOG groups of packets that ingress and egress rules deny.
var groups = []uint16{1, 2}

func openDropLog(nodes []*lab.Node) (dropLog, error) {
	var d dropLog
	for _, n := range nodes {
		logs, err := observe.OpenLogGroups(n.NS, groups...)
		if err != nil {
			return nil, errors.Join(err, d.close())
		}
		d = append(d, logs)
	}
	return d, nil
}

func (d dropLog) collect() (func(sent, delivered flowKey) Mark, error) {
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

func (d dropLog) close() error { return closeAll(d) }

func closeAll[T io.Closer](all []T) error {
	var errs []error
	for _, one := range all {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}
