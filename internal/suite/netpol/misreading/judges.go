// SPDX-License-Identifier: Apache-2.0

package misreading

import (
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/viplab/viplab/internal/suite/netpol/oracle"
)

// judges are the readings that combine the verdicts of policies wrongly.
func judges() []Reading {
	return []Reading{
		{Name: "only-first-policy", Allows: bothSides(func(c *oracle.Cluster, f oracle.Flow, of side) bool {
			all := of(c.Judge(f)).Isolating
			return of(with(c, first(all, 1)).Judge(f)).Allowed()
		})},
		{Name: "only-last-policy", Allows: bothSides(func(c *oracle.Cluster, f oracle.Flow, of side) bool {
			all := of(c.Judge(f)).Isolating
			return of(with(c, all[max(0, len(all)-1):]).Judge(f)).Allowed()
		})},
		{Name: "policies-intersect", Allows: bothSides(func(c *oracle.Cluster, f oracle.Flow, of side) bool {
			return !slices.ContainsFunc(of(c.Judge(f)).Isolating, func(p *Policy) bool {
				return !of(with(c, []*Policy{p}).Judge(f)).Allowed()
			})
		})},
		{Name: "egress-accept-skips-ingress", Allows: func(c *oracle.Cluster, f oracle.Flow) bool {
			j := c.Judge(f)
			return j.Egress.By != nil || j.Allowed()
		}},
		{Name: "one-side-suffices", Allows: func(c *oracle.Cluster, f oracle.Flow) bool {
			j := c.Judge(f)
			return j.Egress.Allowed() || j.Ingress.Allowed()
		}},
		{Name: "except-is-deny", Allows: func(c *oracle.Cluster, f oracle.Flow) bool {
			j := c.Judge(f)
			return j.Allowed() && !slices.ContainsFunc(j.Ingress.Isolating,
				func(p *Policy) bool { return excepts(p, f.From.Addr) })
		}},
		{Name: "named-port-from-source", Allows: func(c *oracle.Cluster, f oracle.Flow) bool {
			if f.From.Pod != nil && f.To.Pod != nil && f.From.Pod != f.To.Pod {
				to := *f.To.Pod
				to.Ports = f.From.Pod.Ports
				f.To.Pod = &to
			}
			return c.Allows(f)
		}},
	}
}

type side func(oracle.Judgement) oracle.Side

// bothSides returns an Allows function that judges the two sides separately.
func bothSides(allows func(*oracle.Cluster, oracle.Flow, side) bool) func(*oracle.Cluster, oracle.Flow) bool {
	egress := func(j oracle.Judgement) oracle.Side { return j.Egress }
	ingress := func(j oracle.Judgement) oracle.Side { return j.Ingress }
	return func(c *oracle.Cluster, f oracle.Flow) bool { return allows(c, f, egress) && allows(c, f, ingress) }
}

// with returns the cluster with other policies.
func with(c *oracle.Cluster, policies []*Policy) *oracle.Cluster {
	return &oracle.Cluster{Namespaces: c.Namespaces, Pods: c.Pods, Policies: policies}
}

// excepts reports whether an ingress rule of the policy excludes an address by except.
func excepts(p *Policy, a netip.Addr) bool {
	return slices.ContainsFunc(ingressBlocks(p), func(b *networkingv1.IPBlock) bool {
		return slices.ContainsFunc(b.Except, func(e string) bool {
			except, err := netip.ParsePrefix(e)
			return err == nil && except.Contains(a)
		})
	})
}
