// SPDX-License-Identifier: Apache-2.0

// Package model computes what a Service proxier has to serve on one node in one IP family: which address and port lead
// to which endpoints, for which clients.
//
// It turns a snapshot of the cluster into Services with typed ports and endpoint sets. It handles traffic policies,
// topology hints, terminating endpoints, Services with several EndpointSlices and malformed input. It does not depend
// on any kernel mechanism. A Service that is the same in two snapshots keeps its pointer, so a proxier compares
// pointers (Diff) and does work only for what changed.
package model

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// State is everything that a node has to serve in one family. It is immutable.
type State struct {
	// Services are sorted by namespace, then name. An unchanged Service has the same pointer in successive states.
	Services []*Service
}

// Service is a Kubernetes Service with a virtual IP in this family.
type Service struct {
	Namespace, Name string
	// Ports are in the order of the manifest. Their IDs are unique.
	Ports []*Port
	// Health is set only for a LoadBalancer Service with externalTrafficPolicy Local, and nil for all others.
	Health *HealthCheck
}

// HealthCheck is the port on which the node reports to load balancers whether it has endpoints of the Service
// (spec.healthCheckNodePort).
type HealthCheck struct {
	Port uint16
	// LocalEndpoints counts the distinct addresses of ready endpoints on this node. Terminating endpoints do not count,
	// even if they still serve, so that load balancers drain the node.
	LocalEndpoints int
}

// PortID identifies a port of a Service.
type PortID struct {
	Namespace, Name string
	// Port is the port's name. It is empty for the only port of a Service.
	Port     string
	Protocol corev1.Protocol
}

// String returns "namespace/name:port", or "namespace/name" for an unnamed port.
func (id PortID) String() string {
	if id.Port == "" {
		return id.Namespace + "/" + id.Name
	}
	return id.Namespace + "/" + id.Name + ":" + id.Port
}

// Port is one port of a Service: its frontends, and the endpoints behind them.
type Port struct {
	ID PortID
	// Number is the port on all virtual IPs.
	Number    uint16
	ClusterIP netip.Addr
	// NodePort is the port on the node's own addresses. Zero means that the port has no NodePort.
	NodePort uint16
	// ExternalIPs and LoadBalancerIPs are further virtual IPs of this family. LoadBalancerIPs excludes addresses with
	// ipMode Proxy, because their traffic must pass through the load balancer (KEP-1860).
	ExternalIPs, LoadBalancerIPs []netip.Addr
	// SourceRanges limits which clients may use the LoadBalancerIPs. Empty means that every client may.
	SourceRanges []netip.Prefix
	// InternalLocal is set if internalTrafficPolicy is Local: it applies to the ClusterIP. ExternalLocal is set if
	// externalTrafficPolicy is Local: it applies to all other frontends.
	InternalLocal, ExternalLocal bool
	// Affinity is the time for which a client keeps its endpoint after its last new connection. Zero means no session
	// affinity.
	Affinity time.Duration
	// HealthCheckPort is the Service's health check port. Zero means none.
	HealthCheckPort uint16

	// Cluster is the set of endpoints for traffic under policy Cluster, after topology hints. If no endpoint is ready,
	// it holds the terminating endpoints that still serve.
	Cluster []Endpoint
	// Local is the set of endpoints on this node, for traffic under policy Local. Topology hints do not apply. If none
	// of them is ready, it holds the terminating endpoints that still serve.
	Local []Endpoint
	// Anywhere is set if any node has a usable endpoint. If Local is empty, Anywhere distinguishes a Service without
	// endpoints from one whose endpoints are all on other nodes.
	Anywhere bool
	// Serving lists all endpoints that still answer established flows, regardless of policies and hints. A flow to any
	// other address is stale.
	Serving []netip.AddrPort
}

// Endpoint is an address and port that serves a Service port.
type Endpoint struct {
	Addr netip.AddrPort
	// OnNode is set if the endpoint runs on this node. NodeUnknown is set if its slice does not say where it runs: it
	// may be here, but is not local to any node (discovery/v1 Endpoint.nodeName).
	OnNode, NodeUnknown bool
	// Terminating is set if the endpoint is shutting down.
	Terminating bool
}

// External reports whether the port has frontends besides its ClusterIP.
func (p *Port) External() bool {
	return p.NodePort != 0 || len(p.ExternalIPs) > 0 || len(p.LoadBalancerIPs) > 0
}

// Internal returns the endpoints for traffic to the ClusterIP.
func (p *Port) Internal() []Endpoint {
	if p.InternalLocal {
		return p.Local
	}
	return p.Cluster
}

// FromOutside returns the endpoints for traffic from outside the cluster to the frontends other than the ClusterIP.
func (p *Port) FromOutside() []Endpoint {
	if p.ExternalLocal {
		return p.Local
	}
	return p.Cluster
}

// Used returns the endpoints of each policy that a frontend uses, and nil for a policy that no frontend uses. Under
// external policy Local, traffic of the cluster itself still needs the endpoints of policy Cluster.
func (p *Port) Used() (cluster, local []Endpoint) {
	if !p.InternalLocal || p.External() {
		cluster = p.Cluster
	}
	if p.InternalLocal || p.ExternalLocal && p.External() {
		local = p.Local
	}
	return cluster, local
}

// Reached returns the endpoints that at least one frontend leads to, without duplicates.
func (p *Port) Reached() []Endpoint {
	all, local := p.Used()
	all = slices.Clip(all)
	for _, ep := range local {
		if !slices.ContainsFunc(all, func(o Endpoint) bool { return o.Addr == ep.Addr }) {
			all = append(all, ep)
		}
	}
	return all
}

// Admitted returns the source ranges that may use the LoadBalancerIPs; empty means that every client may. If
// SourceRanges contains the address of the node, the result also includes the LoadBalancerIPs: where one of them is
// configured on a device, the node may pick it as the source of its own packets.
func (p *Port) Admitted(node netip.Addr) []netip.Prefix {
	from := slices.Clone(p.SourceRanges)
	if slices.ContainsFunc(from, func(r netip.Prefix) bool { return r.Contains(node) }) {
		for _, ip := range p.LoadBalancerIPs {
			from = append(from, netip.PrefixFrom(ip, ip.BitLen()))
		}
	}
	return from
}

// Diff returns the Services that only old has and those that only new has. A Service that changed is in both lists. A
// nil State is empty.
func Diff(old, new *State) (gone, come []*Service) {
	var before, after []*Service
	if old != nil {
		before = old.Services
	}
	if new != nil {
		after = new.Services
	}
	return diff(before, after, compareServices)
}

func compareServices(a, b *Service) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// diff returns the elements that only one of two lists has, which are sorted by order. Elements that compare equal but
// are not identical are both gone and come.
func diff[T comparable](old, new []T, order func(a, b T) int) (gone, come []T) {
	for len(old) > 0 && len(new) > 0 {
		if old[0] == new[0] {
			old, new = old[1:], new[1:]
			continue
		}
		c := order(old[0], new[0])
		if c <= 0 {
			gone, old = append(gone, old[0]), old[1:]
		}
		if c >= 0 {
			come, new = append(come, new[0]), new[1:]
		}
	}
	return append(gone, old...), append(come, new...)
}
