// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// refusals returns the scenarios of ports without endpoints beside ports with them: the ones are refused, the others
// served.
func refusals() []spec.Scenario {
	return []spec.Scenario{
		halfServed("noep-protocol-beside", 150, servicePort{"tcp", 80, 8080}, servicePort{"udp", 80, 8081}),
		halfServed("noep-port-beside", 151, servicePort{"tcp", 80, 8080}, servicePort{"tcp", 81, 9090}),
		podsRefused(),
	}
}

type servicePort struct {
	proto  string
	number uint16
	target int
}

// halfServed has a Service with two ports. First one of them has an endpoint, then the other one.
func halfServed(id string, host int, one, other servicePort) spec.Scenario {
	externalIP, loadBalancer := ExternalIP(host), LoadBalancerIP(host)
	rows := func(served, refused servicePort) []spec.Row {
		var rows []spec.Row
		for _, from := range []string{"c1", "n1", "client"} {
			for _, to := range frontends(from, externalIP, loadBalancer, served) {
				rows = append(rows, spec.Row{From: from, To: to, Proto: served.proto, Servers: []string{"a2"},
					Port: uint16(served.target)})
			}
			for _, to := range frontends(from, externalIP, loadBalancer, refused) {
				rows = append(rows, spec.Row{From: from, To: to, Proto: refused.proto, Want: spec.Refused})
			}
		}
		return rows
	}
	return spec.Scenario{
		ID: id, Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.LoadBalancer, spec.ExternalIPs},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a2", "n2", UDP(8081), TCP(9090)),
			Service("web", one.option(), other.option(), LoadBalancer(), ExternalIPs(externalIP.V4, externalIP.V6),
				targets(one.target, 0)),
		},
		Steps: []spec.Step{
			{
				Name: "the first has an endpoint",
				Do: append(IngressViaN1("web", loadBalancer.V4, loadBalancer.V6),
					RouteVia("client", externalIP.V4, externalIP.V6, "n1")),
				Rows: rows(one, other),
			},
			{Name: "the second has it", Do: []spec.Action{Edit("web", targets(0, other.target))}, Rows: rows(other, one)},
		},
	}
}

func (p servicePort) option() ServiceOption {
	if p.proto == "udp" {
		return UDPPort(int32(p.number), p.target)
	}
	return Port(int32(p.number), p.target)
}

// targets sets the targetPorts of a Service. 0 stands for a name that no port of a pod has.
func targets(numbers ...int) func(*corev1.Service) {
	return func(s *corev1.Service) {
		for i, n := range numbers {
			if s.Spec.Ports[i].TargetPort = intstr.FromInt(n); n == 0 {
				s.Spec.Ports[i].TargetPort = intstr.FromString("missing")
			}
		}
	}
}

// frontends returns the addresses at which a client asks for a port of the Service web. It leaves out what
// noep-host-to-lb-or-eip is about.
func frontends(from string, externalIP, loadBalancer spec.Target, p servicePort) []spec.Target {
	externalIP.Port, loadBalancer.Port = p.number, p.number
	inside, nodePort := spec.ClusterIPOf("web", p.number), spec.NodePortAt("n1", "web", p.number)
	switch from {
	case "n1":
		return []spec.Target{inside, nodePort}
	case "client":
		return []spec.Target{nodePort, externalIP, loadBalancer}
	default:
		return []spec.Target{inside, nodePort, externalIP, loadBalancer}
	}
}

// podsRefused has two Services on one load balancer's address and one external IP. Nobody serves the second one.
func podsRefused() spec.Scenario {
	externalIP, loadBalancer := ExternalIP(152), LoadBalancerIP(152)
	rows := func(port uint16, row spec.Row) []spec.Row {
		var rows []spec.Row
		for _, to := range []spec.Target{externalIP, loadBalancer} {
			for _, proto := range []string{"tcp", "udp"} {
				row.To, row.Proto, row.To.Port = to, proto, port
				rows = append(rows, FromEach(row, "c1", "c2")...)
			}
		}
		return rows
	}
	service := func(name string, port int32) *corev1.Service {
		return Service(name, LoadBalancer(), Port(port, 8080), UDPPort(port, 8081), ExternalIPs(externalIP.V4, externalIP.V6))
	}
	return spec.Scenario{
		ID: "noep-pods-refused", Needs: []spec.Feature{spec.LoadBalancer, spec.ExternalIPs},
		Given: []store.Object{
			Pod("c1", "n1"), Pod("c2", "n2"), Backend("a2", "n2", UDP(8081)), service("web", 80), service("empty", 81),
		},
		Steps: []spec.Step{{
			Do: []spec.Action{
				Ingress("web", loadBalancer.V4, loadBalancer.V6), Ingress("empty", loadBalancer.V4, loadBalancer.V6),
			},
			Rows: slices.Concat(rows(80, spec.Row{Servers: []string{"a2"}}), rows(81, spec.Row{Want: spec.Refused})),
		}},
	}
}
