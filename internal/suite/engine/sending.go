// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// lane is the number of consecutive probes of one lane in a row with Even. Lanes run concurrently, because the order of
// draws does not matter.
const lane = 50

// beyondDoubt is the chance of a draw that is so uneven that no more probes are needed.
const beyondDoubt = 1e-12

// looks is how often a row with Even sends its number of probes at most.
const looks = 4

// probeRow sends the probes of a row in one family. If new connections look unevenly spread, it sends as many again.
// It returns all observations. So few probes suffice as a rule, and chance alone decides nothing: a catalogue has so
// many rows that chance makes one of them uneven in one of some thousand runs.
func (p *prober) probeRow(ctx context.Context, row spec.Row, family lab.Family) ([]spec.Observation, error) {
	probe, err := p.probeOf(row, family)
	if err != nil {
		return nil, err
	}
	s := &sending{prober: p, row: row, probe: probe, family: family}
	s.volleys(func() { s.volley(ctx) })
	return s.seen, s.err
}

// turns groups rows. Those of one group must be probed one after another: they want an even spread from the same port
// of a Service by way of the same node. Round robin serves all clients in turn, so of two that alternate each would
// always reach the same endpoint.
func turns(probes []*probed, proxiedBy func(spec.Row) string) [][]*probed {
	type rotation struct {
		node, proto string
		to          spec.Target
		family      lab.Family
	}
	var out [][]*probed
	groups := map[rotation]int{} // index in out
	for _, p := range probes {
		if !p.row.Even {
			out = append(out, []*probed{p})
			continue
		}
		to := p.row.To
		if to.Service != "" { // the addresses of a Service may share one rotation
			to = spec.Target{Service: to.Service, Port: to.Port}
		}
		r := rotation{proxiedBy(p.row), p.row.Protocol(), to, p.family}
		if _, ok := groups[r]; !ok {
			groups[r] = len(out)
			out = append(out, nil)
		}
		out[groups[r]] = append(out[groups[r]], p)
	}
	return out
}

// sending holds the probes of a row in one family and their observations.
type sending struct {
	prober *prober
	row    spec.Row
	probe  traffic.Probe
	family lab.Family

	mu       sync.Mutex
	left     int // number of probes not yet sent
	unwanted int
	seen     []spec.Observation
	err      error
}

// volleys sends the row's number of probes, and again while they leave a doubt.
func (s *sending) volleys(send func()) {
	for range looks {
		s.left = s.row.Count()
		if send(); !s.doubtful() {
			return
		}
	}
}

// volley sends what is left, one probe after another, or in lanes.
func (s *sending) volley(ctx context.Context) {
	lanes := 1
	if s.row.Even && s.row.Conn == "" {
		lanes = (s.left + lane - 1) / lane
	}
	each(make([]struct{}, lanes), lanes, func(struct{}) { s.send(ctx) })
}

// doubtful reports whether more probes are needed to tell a fair draw from an unfair one.
func (s *sending) doubtful() bool {
	return s.err == nil && s.unwanted == 0 && s.row.Conn == "" && s.row.Uneven(s.seen, spec.Suspicion) &&
		!s.row.Uneven(s.seen, beyondDoubt)
}

// send sends probes until none is left or the row has failed.
func (s *sending) send(ctx context.Context) {
	for s.take() {
		o := spec.Observation{Family: s.family, To: s.probe.To}
		err := s.prober.send(ctx, s.row, s.probe, &o)
		s.note(o, err)
	}
}

// take reports whether to send one more probe, and counts it.
func (s *sending) take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left--
	return s.left >= 0 && s.err == nil && s.unwanted < s.prober.unwantedLimit
}

func (s *sending) note(o spec.Observation, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.err = cmp.Or(s.err, fmt.Errorf("%s -> %s: %w", s.row.From, s.row.To, err))
		return
	}
	s.seen = append(s.seen, o)
	if !s.row.Want.Allows(o.Outcome) {
		s.unwanted++
	}
	if len(s.seen)%lane == 0 && s.row.Conn == "" && s.row.Uneven(s.seen, beyondDoubt) {
		s.left = 0
	}
}
