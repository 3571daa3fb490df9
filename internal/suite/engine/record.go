// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// record keeps what was judged, for the report.
func (w *world) record(probes []*probed, facts spec.Facts) {
	var out []spec.Probed
	for _, p := range probes {
		if p.fault != nil {
			continue
		}
		out = append(out, spec.Probed{
			Step: w.stepName, Probe: p.row.Probe(p.family), Want: p.row.Wants(), Got: p.got(facts), Holds: len(p.wrong) == 0,
			Path: w.path(p, facts),
		})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.probed = append(w.probed, out...)
}

// remark keeps what a row of a profile has found out. What families agree on is said once.
func (w *world) remark(p *probed) {
	if p.row.Choice == "" {
		return
	}
	var outcomes []string
	for _, o := range p.seen {
		if text := o.Outcome.String(); !slices.Contains(outcomes, text) {
			outcomes = append(outcomes, text)
		}
	}
	w.Note(p.row.Choice + ": " + strings.Join(outcomes, ", "))
}

func (w *world) Note(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.remarks, text) {
		w.remarks = append(w.remarks, text)
	}
}

// got is what was seen, with what is wrong about it where that does not speak for itself.
func (p *probed) got(facts spec.Facts) string {
	got := p.row.Got(p.seen, facts)
	if extra := strings.Join(p.wrong, "; "); extra != "" && !strings.Contains("got "+got, extra) {
		got += ": " + extra
	}
	return got
}

// path is the way of a probe, found out from the routes of the hosts that it passes: from where it starts to the first
// node, which may translate it, and on to the server that answered.
func (w *world) path(p *probed, facts spec.Facts) []spec.Hop {
	o := p.telling()
	if o == nil {
		return nil
	}
	hops := []spec.Hop{w.hop(p.row.From)}
	reach := func(name string) {
		if name != "" && hops[len(hops)-1].Host != name {
			hops = append(hops, w.hop(name))
		}
	}
	reach(hops[0].Node)
	if at := hops[len(hops)-1].Host; w.Lab().Node(at) == nil {
		for _, name := range w.toFirstNode(at, o.To.Addr(), facts) {
			reach(name)
		}
	}
	if o.Outcome == traffic.Reply {
		server := w.hop(o.Server)
		reach(server.Node)
		reach(server.Host)
	}
	return hops
}

// telling is the first observation that is not as wanted, or the first of all.
func (p *probed) telling() *spec.Observation {
	if len(p.seen) == 0 {
		return nil
	}
	i := slices.IndexFunc(p.seen, func(o spec.Observation) bool { return !p.row.Want.Allows(o.Outcome) })
	return &p.seen[max(i, 0)]
}

// toFirstNode are the hosts outside of the cluster that a packet passes, and the node or other host that it then comes
// to.
func (w *world) toFirstNode(from string, to netip.Addr, facts spec.Facts) []string {
	var names []string
	outside := map[string]*lab.Host{"client": w.Lab().Client(), "router": w.Lab().Router()}
	for at := outside[from]; at != nil; at = outside[from] {
		from = facts.Names[at.NextHop(to)]
		if from == "" || slices.Contains(names, from) {
			break
		}
		names = append(names, from)
	}
	return names
}

func (w *world) hop(name string) spec.Hop {
	if p := w.Lab().Pod(w.podName(name)); p != nil {
		return spec.Hop{Host: name, Node: p.Node().Name()}
	}
	return spec.Hop{Host: name}
}
