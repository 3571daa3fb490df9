// SPDX-License-Identifier: Apache-2.0

// Package misread lists wrong readings of the NetworkPolicy API: mistakes that enforcers have made, or could make. It
// is the yardstick of the cases: each reading must differ from the right one in the table of one case at least.
//
// Nearly all of them are told by the policies that someone who reads so would take the given ones for. So they can be
// shown to the oracle and, just as well, be given to a real enforcer instead of the policies that it should have got.
package misreading

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/viplab/viplab/internal/suite/netpol/oracle"
)

// Reading is a wrong reading. It has one of Policies and Allows.
type Reading struct {
	Name string
	// Policies are what the given ones are taken for. It may change them: they are copies, as written and not yet
	// defaulted.
	Policies func(c *oracle.Cluster, given []*Policy) []*Policy
	// Allows judges a connection, of a cluster with defaulted policies.
	Allows func(c *oracle.Cluster, f oracle.Flow) bool
}

// Policy saves breath.
type Policy = networkingv1.NetworkPolicy

type (
	peer     = networkingv1.NetworkPolicyPeer
	port     = networkingv1.NetworkPolicyPort
	ingress  = networkingv1.NetworkPolicyIngressRule
	egress   = networkingv1.NetworkPolicyEgressRule
	ruleEdit func(peers []peer, ports []port) ([]peer, []port, bool)
)

const (
	in  = networkingv1.PolicyTypeIngress
	out = networkingv1.PolicyTypeEgress
)

// All are the readings.
func All() []Reading {
	var all []Reading
	for _, family := range [][]Reading{selectors(), types(), rules(), peers(), blocks(), ports(), judges()} {
		all = append(all, family...)
	}
	return all
}

// Given are the readings that an enforcer can be given: those that are told by policies.
func Given() []Reading {
	return slices.DeleteFunc(All(), func(r Reading) bool { return r.Policies == nil })
}

// Names are the names of those.
func Names() []string {
	var names []string
	for _, r := range Given() {
		names = append(names, r.Name)
	}
	return names
}

// Find is the one of a name.
func Find(name string) (Reading, error) {
	all := Given()
	i := slices.IndexFunc(all, func(r Reading) bool { return r.Name == name })
	if i < 0 {
		return Reading{}, fmt.Errorf("unknown wrong reading %q: there are %s", name, strings.Join(Names(), ", "))
	}
	return all[i], nil
}

// each is a reading that takes every policy for another one.
func each(name string, edit func(*Policy)) Reading {
	return Reading{Name: name, Policies: func(_ *oracle.Cluster, given []*Policy) []*Policy {
		for _, p := range given {
			edit(p)
		}
		return given
	}}
}

// eachRule is a reading that takes every rule for another one, or for none where the edit says false.
func eachRule(name string, edit ruleEdit) Reading {
	return each(name, func(p *Policy) { editRules(p, edit) })
}

func editRules(p *Policy, edit ruleEdit) {
	// A list that had rules and has none now is not the same as no list: types are defaulted by it.
	hadEgress := len(p.Spec.Egress) > 0
	var ins []ingress
	for _, r := range p.Spec.Ingress {
		if from, ports, keep := edit(r.From, r.Ports); keep {
			ins = append(ins, ingress{From: from, Ports: ports})
		}
	}
	var outs []egress
	for _, r := range p.Spec.Egress {
		if to, ports, keep := edit(r.To, r.Ports); keep {
			outs = append(outs, egress{To: to, Ports: ports})
		}
	}
	p.Spec.Ingress, p.Spec.Egress = ins, outs
	if len(p.Spec.PolicyTypes) == 0 && hadEgress {
		p.Spec.PolicyTypes = []networkingv1.PolicyType{in, out}
	}
}

// eachPeer is a reading that takes every peer for some others. A rule whose peers are all gone allows nobody.
func eachPeer(name string, edit func(namespace string, p peer) []peer) Reading {
	return each(name, func(p *Policy) {
		editRules(p, func(peers []peer, ports []port) ([]peer, []port, bool) {
			var now []peer
			for _, x := range peers {
				now = append(now, edit(p.Namespace, x)...)
			}
			return now, ports, len(peers) == 0 || len(now) > 0
		})
	})
}

// eachPort is a reading that takes every port for some others. A rule whose ports are all gone allows nothing.
func eachPort(name string, edit func(port) []port) Reading {
	return eachRule(name, func(peers []peer, ports []port) ([]peer, []port, bool) {
		var now []port
		for _, x := range ports {
			now = append(now, edit(x)...)
		}
		return peers, now, len(ports) == 0 || len(now) > 0
	})
}

// first is the beginning of a list.
func first[T any](list []T, n int) []T { return list[:min(n, len(list))] }
