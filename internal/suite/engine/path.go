// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"net/netip"
	"slices"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// path returns the path of a probe, derived from the routes of hosts: from its sender to the first node, which may
// translate it, and on to the server that answered.
func (s *scope) path(p *probed, facts spec.Facts) []spec.Hop {
	o := p.decisive()
	if o == nil {
		return nil
	}
	hops := []spec.Hop{s.hop(p.row.From)}
	reach := func(name string) {
		if name != "" && hops[len(hops)-1].Host != name {
			hops = append(hops, s.hop(name))
		}
	}
	reach(hops[0].Node)
	if at := hops[len(hops)-1].Host; s.Lab().Node(at) == nil {
		for _, name := range s.toFirstNode(at, o.To.Addr(), facts) {
			reach(name)
		}
	}
	if o.Outcome == traffic.Reply {
		server := s.hop(o.Server)
		reach(server.Node)
		reach(server.Host)
	}
	return hops
}

// toFirstNode returns the hosts outside of the cluster that a packet passes, and the node or other host after them.
func (s *scope) toFirstNode(from string, to netip.Addr, facts spec.Facts) []string {
	var names []string
	outside := map[string]*lab.Host{"client": s.Lab().Client(), "router": s.Lab().Router()}
	for at := outside[from]; at != nil; at = outside[from] {
		from = facts.Names[at.NextHop(to)]
		if from == "" || slices.Contains(names, from) {
			break
		}
		names = append(names, from)
	}
	return names
}

func (s *scope) hop(name string) spec.Hop {
	if p := s.Lab().Pod(s.podName(name)); p != nil {
		return spec.Hop{Host: name, Node: p.Node().Name()}
	}
	return spec.Hop{Host: name}
}
