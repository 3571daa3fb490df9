// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// security returns the scenarios of what a client must not get from a node, or through it.
func security() []spec.Scenario {
	return []spec.Scenario{
		localnetGuard(), localnetOnlyWhenNeeded(), externalIPHijack(), namespaceBinding(), spoofedPodSource(), markCollision(),
	}
}

// routeLocalnet makes the kernel route 127.0.0.0/8 between devices.
const routeLocalnet = "net.ipv4.conf.all.route_localnet"

func localnetOnlyWhenNeeded() spec.Scenario {
	return spec.Scenario{
		ID:      "sec-localnet-only-when-needed",
		Cluster: &spec.ClusterConfig{Proxy: spec.ProxyConfig{NoLocalhostNodePorts: true}, Nodes: []string{"n1"}},
		Needs:   []spec.Feature{spec.NodePort},
		Given:   []store.Object{Backend("a2", "n2"), Service("web", NodePort())},
		Steps: []spec.Step{{
			Rows: []spec.Row{{From: "client", To: spec.NodePortAt("n1", "web", 80), By: []string{"a2"}}},
			Check: func(_ context.Context, w spec.World) error {
				n1, err := w.Host("n1")
				if err != nil {
					return err
				}
				switch on, err := n1.Sysctl(routeLocalnet); {
				case err != nil:
					return &spec.HarnessError{Err: err}
				case on != "0":
					return fmt.Errorf("%s is %s on n1", routeLocalnet, on)
				}
				return nil
			},
		}},
	}
}

// externalIPHijack records a hazard of the API: whoever may create Services may take any address.
func externalIPHijack() spec.Scenario {
	return spec.Scenario{
		ID:    "sec-externalip-hijack",
		Needs: []spec.Feature{spec.ClusterIP, spec.ExternalIPs},
		Given: []store.Object{
			Pod("c1", "n1"), Pod("victim", "n2", TCP(8080)), Backend("thief", "n3"),
		},
		Steps: []spec.Step{
			{Name: "before", Rows: []spec.Row{{From: "c1", To: spec.HostAt("victim", 8080), By: []string{"victim"}}}},
			{Name: "a Service claims the victim's address", Do: []spec.Action{claim("victim")}, Rows: []spec.Row{
				{From: "c1", To: spec.HostAt("victim", 8080), By: []string{"thief"}},
			}},
			{
				Name: "it is denied", Do: []spec.Action{Edit("web", func(s *corev1.Service) { s.Spec.ExternalIPs = nil })},
				Rows: []spec.Row{
					{From: "c1", To: spec.HostAt("victim", 8080), By: []string{"victim"}},
					{From: "c1", To: spec.ClusterIPOf("web", 8080), By: []string{"thief"}},
				},
			},
		},
	}
}

// claim makes a Service with the addresses of a pod as its externalIPs.
func claim(pod string) spec.Action {
	return spec.Action{Name: "claim the addresses of " + pod, Run: func(_ context.Context, w spec.World) error {
		p, err := w.Host(pod)
		if err != nil {
			return err
		}
		var ips []string
		for _, a := range p.Addrs() {
			ips = append(ips, a.String())
		}
		return w.Apply(Service("web", Port(8080, 8080), ExternalIPs(ips...)))
	}}
}

func namespaceBinding() spec.Scenario {
	return spec.Scenario{
		ID:    "sec-namespace-binding",
		Needs: []spec.Feature{spec.ClusterIP},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a2", "n2"), Pod("intruder", "n1", TCP(8080)), Service("web"), Service("empty"),
		},
		Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
			// The slice comes into a namespace that has a Service of the same name, and one that has not.
			other := w.Namespace() + "-other"
			if err := w.Apply(Namespace(other, nil)); err != nil {
				return &spec.HarnessError{Err: err}
			}
			same := Service("web", Selecting(""))
			same.Namespace = other
			if err := w.Apply(same); err != nil {
				return &spec.HarnessError{Err: err}
			}
			for _, service := range []string{"web", "empty"} {
				if err := EndpointsIn(other, service, service, "", 8080, "intruder").Run(ctx, w); err != nil {
					return &spec.HarnessError{Err: err}
				}
			}
			return w.Expect(ctx, append(Unserved(spec.Row{From: "c1", To: spec.ClusterIPOf("empty", 80)}),
				spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Times: 20, By: []string{"a2"}},
			)...)
		}}},
	}
}
