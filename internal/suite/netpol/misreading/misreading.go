// SPDX-License-Identifier: Apache-2.0

// Package misreading lists wrong readings of the NetworkPolicy API: mistakes that enforcers have made, or could make.
// Each of them must change the table of at least one case.
//
// Nearly all are written as a change of policies: a reader with this mistake treats the given policies as the changed
// ones. So a reading can be tried on the oracle, and on a real enforcer that gets the changed policies.
package misreading

import (
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/viplab/viplab/internal/suite/netpol/oracle"
)

// Reading is a wrong reading. Exactly one of Policies and Allows is set.
type Reading struct {
	Name string
	// Policies returns the misread policies. Its arguments are copies, which it may change, without defaults.
	Policies func(c *oracle.Cluster, given []*Policy) []*Policy
	// Allows is the wrong verdict on a connection in a cluster with defaulted policies.
	Allows func(c *oracle.Cluster, f oracle.Flow) bool
}

// Policy is a NetworkPolicy.
type Policy = networkingv1.NetworkPolicy

type (
	peer        = networkingv1.NetworkPolicyPeer
	port        = networkingv1.NetworkPolicyPort
	rule        = oracle.Rule
	ingressRule = networkingv1.NetworkPolicyIngressRule
	egressRule  = networkingv1.NetworkPolicyEgressRule
)

const (
	in  = networkingv1.PolicyTypeIngress
	out = networkingv1.PolicyTypeEgress
)

// All returns all readings.
func All() []Reading {
	return slices.Concat(selectors(), types(), rules(), peers(), blocks(), ports(), judges())
}

// Given returns the readings that can be tried on an enforcer, because they have Policies.
func Given() []Reading {
	return slices.DeleteFunc(All(), func(r Reading) bool { return r.Policies == nil })
}

// Names returns the names of the readings that Given returns.
func Names() []string {
	var names []string
	for _, r := range Given() {
		names = append(names, r.Name)
	}
	return names
}

// each returns a reading that replaces every policy.
func each(name string, edit func(*Policy)) Reading {
	return Reading{Name: name, Policies: func(_ *oracle.Cluster, given []*Policy) []*Policy {
		for _, p := range given {
			edit(p)
		}
		return given
	}}
}

// eachRule returns a reading that replaces every rule, or drops it if the edit returns false.
func eachRule(name string, edit func(*rule) bool) Reading {
	return each(name, func(p *Policy) {
		// An empty list is not the same as no list, because the default of types depends on it.
		if len(p.Spec.PolicyTypes) == 0 && len(p.Spec.Egress) > 0 {
			p.Spec.PolicyTypes = []networkingv1.PolicyType{in, out}
		}
		p.Spec.Ingress = all(p.Spec.Ingress, func(r ingressRule) []ingressRule {
			now := rule{Peers: r.From, Ports: r.Ports}
			if !edit(&now) {
				return nil
			}
			return []ingressRule{{From: now.Peers, Ports: now.Ports}}
		})
		p.Spec.Egress = all(p.Spec.Egress, func(r egressRule) []egressRule {
			now := rule{Peers: r.To, Ports: r.Ports}
			if !edit(&now) {
				return nil
			}
			return []egressRule{{To: now.Peers, Ports: now.Ports}}
		})
	})
}

// eachPeer returns a reading that replaces every peer by any number of peers. A rule that loses all its peers allows
// nothing.
func eachPeer(name string, edit func(peer) []peer) Reading {
	return eachRule(name, func(r *rule) bool {
		had := len(r.Peers) > 0
		r.Peers = all(r.Peers, edit)
		return !had || len(r.Peers) > 0
	})
}

// eachPort returns a reading that replaces every port by any number of ports. A rule that loses all its ports allows
// nothing.
func eachPort(name string, edit func(port) []port) Reading {
	return eachRule(name, func(r *rule) bool {
		had := len(r.Ports) > 0
		r.Ports = all(r.Ports, edit)
		return !had || len(r.Ports) > 0
	})
}

// all applies an edit to the elements of a list.
func all[T, U any](list []T, edit func(T) []U) (now []U) {
	for _, x := range list {
		now = append(now, edit(x)...)
	}
	return now
}

// change returns an edit that replaces an element by one other.
func change[T any](f func(*T)) func(T) []T {
	return func(x T) []T { f(&x); return []T{x} }
}

// drop returns an edit that removes elements.
func drop[T any](is func(T) bool) func(T) []T { return replace(is, func(T) []T { return nil }) }

// replace returns an edit of some elements only.
func replace[T any](is func(T) bool, by func(T) []T) func(T) []T {
	return func(x T) []T {
		if is(x) {
			return by(x)
		}
		return []T{x}
	}
}

func first[T any](list []T, n int) []T { return list[:min(n, len(list))] }
