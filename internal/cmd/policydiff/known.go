// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/viplab/viplab/internal/suite/netpol/misreading"
	"github.com/viplab/viplab/internal/suite/netpol/oracle"
)

// quirk is a way in which cyclonus reads the API otherwise. cyclonus must say on every connection what our oracle says
// when it reads the API in all these ways, and each must decide on some connection.
type quirk struct {
	name string
	// reason quotes the document that decides against cyclonus.
	reason string
	// reading changes the policies. Nil means no change.
	reading func(*oracle.Cluster, []*networkingv1.NetworkPolicy) []*networkingv1.NetworkPolicy
	// toSelf says that policies apply to connections of a pod with itself.
	toSelf bool
}

var quirks = []quirk{
	{name: "NotIn needs the key", reading: given("NotIn-needs-key"),
		reason: `Labels and Selectors: "tier notin (frontend, backend)" selects "all resources with key equal to tier and ` +
			`values other than frontend and backend, and all resources with no labels with the tier key"`},
	{name: "a pod and itself", toSelf: true,
		reason: `Network Policies: "exception: a pod cannot block access to itself"; cyclonus has --ignore-loopback for it`},
}

// given returns the reading of a name.
func given(name string) func(*oracle.Cluster, []*networkingv1.NetworkPolicy) []*networkingv1.NetworkPolicy {
	all := misreading.Given()
	return all[slices.IndexFunc(all, func(r misreading.Reading) bool { return r.Name == name })].Policies
}

// verdicts reports which connections are allowed.
type verdicts func(oracle.Flow) bool

// expect returns the verdicts of a reader with quirks.
func expect(c *oracle.Cluster, quirks []quirk) verdicts {
	toSelf := false
	policies := make([]*networkingv1.NetworkPolicy, len(c.Policies))
	for i, p := range c.Policies {
		policies[i] = p.DeepCopy()
	}
	for _, q := range quirks {
		if toSelf = toSelf || q.toSelf; q.reading != nil {
			policies = q.reading(c, policies)
		}
	}
	read := &oracle.Cluster{Namespaces: c.Namespaces, Pods: c.Pods, Policies: policies}
	return func(f oracle.Flow) bool {
		if toSelf && f.From.Pod != nil && f.From.Pod == f.To.Pod {
			twin := *f.To.Pod // the oracle exempts a pod and itself, but not two equal pods
			f.To.Pod = &twin
		}
		return read.Allows(f)
	}
}
