// SPDX-License-Identifier: Apache-2.0

// Package port makes the Service port with which tests of rules begin, and what they change of it.
package port

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/proxiers/model"
)

// New makes ns1/svc1:p80, on 172.30.0.41, with the endpoints 10.180.0.1:80, which is on the node, and 10.180.2.1:80.
func New(change ...func(*model.Port)) *model.Port {
	p := &model.Port{
		ID:        model.PortID{Namespace: "ns1", Name: "svc1", Port: "p80", Protocol: corev1.ProtocolTCP},
		Number:    80,
		ClusterIP: netip.MustParseAddr("172.30.0.41"),
	}
	Behind(p, model.Endpoint{Addr: netip.MustParseAddrPort("10.180.0.1:80"), OnNode: true},
		model.Endpoint{Addr: netip.MustParseAddrPort("10.180.2.1:80")})
	for _, c := range change {
		c(p)
	}
	return p
}

// Service makes a Service that has this port alone.
func Service(change ...func(*model.Port)) *model.Service {
	p := New(change...)
	return &model.Service{Namespace: p.ID.Namespace, Name: p.ID.Name, Ports: []*model.Port{p}}
}

// Behind makes these its endpoints, and those of them that are on the node its local ones.
func Behind(p *model.Port, all ...model.Endpoint) {
	p.Cluster, p.Local, p.Anywhere = all, nil, len(all) > 0
	for _, e := range all {
		if e.OnNode {
			p.Local = append(p.Local, e)
		}
	}
}

// NoEndpoints takes all endpoints away.
func NoEndpoints(p *model.Port) { Behind(p) }

// RemoteOnly leaves the endpoint that is not on the node.
func RemoteOnly(p *model.Port) { Behind(p, p.Cluster[1]) }

// TargetPort moves the endpoints to another port.
func TargetPort(number uint16) func(*model.Port) {
	return func(p *model.Port) {
		all := p.Cluster
		for i := range all {
			all[i].Addr = netip.AddrPortFrom(all[i].Addr.Addr(), number)
		}
		Behind(p, all...)
	}
}

// UDP makes it a port of UDP.
func UDP(p *model.Port) { p.ID.Protocol = corev1.ProtocolUDP }

// NodePort gives it the NodePort 30080.
func NodePort(p *model.Port) { p.NodePort = 30080 }

// ETPLocal sets external policy Local.
func ETPLocal(p *model.Port) { p.ExternalLocal = true }

// ITPLocal sets internal policy Local.
func ITPLocal(p *model.Port) { p.InternalLocal = true }

// HealthCheck gives it the health check port 30081.
func HealthCheck(p *model.Port) { p.HealthCheckPort = 30081 }

// ExternalIP gives it the external IP 203.0.113.9.
func ExternalIP(p *model.Port) { p.ExternalIPs = []netip.Addr{netip.MustParseAddr("203.0.113.9")} }

// Balanced gives it the load balancer IP 192.0.2.5.
func Balanced(p *model.Port) { p.LoadBalancerIPs = []netip.Addr{netip.MustParseAddr("192.0.2.5")} }

// Sticky sets session affinity, for ten seconds.
func Sticky(p *model.Port) { p.Affinity = 10 * time.Second }

// Limited adds source ranges.
func Limited(ranges ...string) func(*model.Port) {
	return func(p *model.Port) {
		for _, r := range ranges {
			p.SourceRanges = append(p.SourceRanges, netip.MustParsePrefix(r))
		}
	}
}
