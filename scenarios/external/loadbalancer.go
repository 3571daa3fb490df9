// SPDX-License-Identifier: Apache-2.0

package external

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/traffic"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// loadbalancer returns the scenarios of Services of type LoadBalancer: an address that a load balancer has given to the
// Service, and that nodes serve themselves if its packets reach them unchanged.
func loadbalancer() []spec.Scenario {
	return []spec.Scenario{
		fromExternal(),
		{
			ID:    "lb-vip-any-node",
			Needs: []spec.Feature{spec.LoadBalancer},
			Given: []store.Object{Backend("a1", "n1"), Service("web", LoadBalancer())},
			Steps: []spec.Step{
				{Name: "by n1", Do: []spec.Action{
					Alias("n2", owned4, owned6), IngressIPs("web", corev1.LoadBalancerIPModeVIP, nobodys4, nobodys6, owned4, owned6),
					RouteVia("client", nobodys4, nobodys6, "n1"), RouteVia("client", owned4, owned6, "n1"),
				}, Rows: anyNodeRows()},
				{Name: "by n2, which has one of the addresses", Do: []spec.Action{
					RouteVia("client", nobodys4, nobodys6, "n2"), RouteVia("client", owned4, owned6, "n2"),
				}, Rows: anyNodeRows()},
				{Name: "by n3", Do: []spec.Action{
					RouteVia("client", nobodys4, nobodys6, "n3"), RouteVia("client", owned4, owned6, "n3"),
				}, Rows: anyNodeRows()},
			},
		},
		shortcut(),
		{
			ID:    "lb-ipmode-proxy",
			Needs: []spec.Feature{spec.LoadBalancer, spec.NodePort},
			Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2"), Service("web", LoadBalancer())},
			Steps: []spec.Step{{
				Do: []spec.Action{
					IngressIPs("web", corev1.LoadBalancerIPModeProxy, "203.0.113.24", "2001:db8:113::24"),
					Alias("router", "203.0.113.24", "2001:db8:113::24"), Serve("router", "tcp", 80),
				},
				Rows: []spec.Row{
					{From: "c1", To: spec.IngressOf("web", 80), By: []string{"router"}, Port: 80},
					{From: "n1", To: spec.IngressOf("web", 80), By: []string{"router"}, Port: 80},
					{From: "client", To: spec.NodePortAt("n1", "web", 80), By: []string{"a2"}},
				},
			}},
		},
		{
			ID:    "lb-without-nodeports",
			Needs: []spec.Feature{spec.LoadBalancer},
			Given: []store.Object{Backend("a2", "n2"), Service("web", LoadBalancer(), withoutNodePorts)},
			Steps: []spec.Step{{
				Do: []spec.Action{Ingress("web", "203.0.113.25", "2001:db8:113::25"),
					RouteVia("client", "203.0.113.25", "2001:db8:113::25", "n1")},
				Rows: []spec.Row{
					{From: "client", To: spec.IngressOf("web", 80), By: []string{"a2"}, Port: 8080},
				},
				Check: func(_ context.Context, w spec.World) error {
					if s, ok := store.Get[*corev1.Service](w.Store(), w.Namespace(), "web"); !ok || s.Spec.Ports[0].NodePort != 0 {
						return spec.HarnessErrorf("the Service has a nodePort")
					}
					return nil
				},
			}},
		},
		{
			ID:    "lb-foreign-port-untouched",
			Needs: []spec.Feature{spec.LoadBalancer, spec.VirtualIP},
			Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2"), Service("web", LoadBalancer())},
			Steps: []spec.Step{{
				Do: []spec.Action{
					Ingress("web", "203.0.113.26", "2001:db8:113::26"), RouteVia("client", "203.0.113.26", "2001:db8:113::26", "n1"),
					Alias("router", "203.0.113.26", "2001:db8:113::26"), Serve("router", "tcp", 8026), Serve("router", "udp", 8026),
				},
				Rows: []spec.Row{
					{From: "client", To: spec.IngressOf("web", 80), By: []string{"a2"}},
					{From: "c1", To: spec.IngressOf("web", 8026), By: []string{"router"}},
					{From: "n1", To: spec.IngressOf("web", 8026), By: []string{"router"}},
					// The answer does not come back through the node, which TCP would not survive there.
					{From: "client", To: spec.IngressOf("web", 8026), Proto: "udp", By: []string{"router"}},
				},
			}},
		},
		statusChanges(),
		rollingUpdate(),
		{
			ID:    "lb-no-announcement",
			Needs: []spec.Feature{spec.LoadBalancer, spec.VirtualIP},
			Given: []store.Object{Backend("a2", "n2"), Service("web", LoadBalancer())},
			Steps: []spec.Step{{
				Do: []spec.Action{Ingress("web", "203.0.113.30", "2001:db8:113::30"),
					RouteVia("client", "203.0.113.30", "2001:db8:113::30", "n1")},
				Rows:  []spec.Row{{From: "client", To: spec.IngressOf("web", 80), By: []string{"a2"}}},
				Check: nobodyAnswers,
			}},
		},
	}
}

// Of the addresses of lb-vip-any-node, nobody has the first, and a node the second.
const (
	nobodys4, nobodys6 = "203.0.113.22", "2001:db8:113::22"
	owned4, owned6     = "203.0.113.23", "2001:db8:113::23"
)

func anyNodeRows() []spec.Row {
	return []spec.Row{
		{From: "client", To: spec.AddrAt(nobodys4, nobodys6, 80), By: []string{"a1"}, Port: 8080},
		{From: "client", To: spec.AddrAt(owned4, owned6, 80), By: []string{"a1"}, Port: 8080},
	}
}

func withoutNodePorts(s *corev1.Service) {
	no := false
	s.Spec.AllocateLoadBalancerNodePorts = &no
}

// nobodyAnswers asks the network who has the address of the load balancer.
func nobodyAnswers(ctx context.Context, w spec.World) error {
	for _, f := range w.Lab().Stack().Families() {
		vip, err := w.Resolve(spec.IngressOf("web", 80), f, "tcp")
		if err != nil {
			return err
		}
		fences := []netip.Addr{}
		for _, n := range w.Lab().Nodes() {
			fences = append(fences, n.Addr(f))
		}
		owner, err := traffic.Resolve(ctx, w.Lab().Client().NS, "eth0", vip.Addr(), fences...)
		if err != nil {
			return &spec.HarnessError{Err: err}
		}
		if owner != nil {
			return fmt.Errorf("%s answers for %s on the network", owner, vip.Addr())
		}
	}
	return nil
}
