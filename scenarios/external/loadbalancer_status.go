// SPDX-License-Identifier: Apache-2.0

package external

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// The addresses that statusChanges gives and takes.
var (
	first  = spec.AddrAt("203.0.113.31", "2001:db8:113::31", 80)
	second = spec.AddrAt("203.0.113.32", "2001:db8:113::32", 80)
	third  = spec.AddrAt("203.0.113.33", "2001:db8:113::33", 80)
)

func statusChanges() spec.Scenario {
	return spec.Scenario{
		ID:    "lb-status-changes",
		Needs: []spec.Feature{spec.LoadBalancer},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a2", "n2", UDP(8081)), Service("web", LoadBalancer(), Port(80, 8080), UDPPort(80, 8081)),
		},
		Steps: []spec.Step{
			{
				Name: "two addresses",
				Do:   append([]spec.Action{has(first, second)}, routed(first, second, third)...),
				Rows: append(answers(first, "tcp", "udp"), append(answers(second, "tcp", "udp"), silent(third)...)...),
			},
			{
				Name: "one is replaced",
				Do:   []spec.Action{has(first, third)},
				Rows: append(answers(first, "tcp", "udp"), append(answers(third, "tcp", "udp"), silent(second)...)...),
			},
			{
				Name: "the Service becomes internal",
				Do: []spec.Action{Edit("web", func(s *corev1.Service) {
					s.Spec.Type = corev1.ServiceTypeClusterIP
					s.Spec.ExternalTrafficPolicy = ""
					s.Spec.AllocateLoadBalancerNodePorts = nil
					for i := range s.Spec.Ports {
						s.Spec.Ports[i].NodePort = 0
					}
				})},
				Rows: append([]spec.Row{{From: "c1", To: spec.ClusterIPOf("web", 80), By: []string{"a2"}}},
					append(silent(first), append(silent(second), silent(third)...)...)...),
			},
		},
	}
}

func has(ips ...spec.Target) spec.Action { return hasFor("web", ips...) }

// hasFor gives a Service the addresses of targets.
func hasFor(service string, ips ...spec.Target) spec.Action {
	var texts []string
	for _, ip := range ips {
		texts = append(texts, ip.V4, ip.V6)
	}
	return IngressIPs(service, corev1.LoadBalancerIPModeVIP, texts...)
}

func routed(ips ...spec.Target) []spec.Action {
	var out []spec.Action
	for _, ip := range ips {
		out = append(out, RouteVia("client", ip.V4, ip.V6, "n1"))
	}
	return out
}

func answers(at spec.Target, protos ...string) []spec.Row {
	var rows []spec.Row
	for _, proto := range protos {
		port := map[string]uint16{"tcp": 8080, "udp": 8081}[proto]
		rows = append(rows,
			spec.Row{From: "client", To: at, Proto: proto, By: []string{"a2"}, Port: port},
			spec.Row{From: "c1", To: at, Proto: proto, By: []string{"a2"}, Port: port})
	}
	return rows
}

func silent(at spec.Target) []spec.Row {
	return []spec.Row{
		{From: "client", To: at, Want: spec.NotServed}, {From: "client", To: at, Proto: "udp", Want: spec.NotServed},
		{From: "c1", To: at, Want: spec.NotServed},
	}
}
