// SPDX-License-Identifier: Apache-2.0

// Package model answers, for one node and one IP family, the question every Service proxier starts from: which address
// and port leads to which endpoints, for whom.
//
// It turns a snapshot of the cluster into Services with typed ports and endpoint sets: traffic policies, topology
// hints, terminating endpoints, several slices for one Service and malformed input are dealt with here, once. It knows
// nothing of kernels. What stays the same from one snapshot to the next keeps its pointer, so a proxier finds its work
// by comparing pointers (Diff) and pays for what changed only.
package model

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// State is everything a node has to serve in one family. It is never changed once it is built.
type State struct {
	// Services are sorted by namespace, then name. A Service that did not change keeps its pointer from state to state.
	Services []*Service
}

// Service is a Service that has a virtual IP in this family.
type Service struct {
	Namespace, Name string
	// Ports are in the order of the manifest; no two have the same ID.
	Ports []*Port
	// Health is the health check port of a LoadBalancer Service with externalTrafficPolicy Local, else nil.
	Health *HealthCheck
}

// HealthCheck is a port on which a node tells load balancers whether it has endpoints of a Service.
type HealthCheck struct {
	Port uint16
	// LocalEndpoints counts the distinct addresses of ready endpoints on this node. Terminating ones do not count, even
	// where they still serve: the load balancer is to move on.
	LocalEndpoints int
}

// PortID names a port of a Service.
type PortID struct {
	Namespace, Name string
	// Port is the port's name, empty for a Service's only port.
	Port     string
	Protocol corev1.Protocol
}

// String is "namespace/name:port", or "namespace/name" for an unnamed port.
func (id PortID) String() string {
	if id.Port == "" {
		return id.Namespace + "/" + id.Name
	}
	return id.Namespace + "/" + id.Name + ":" + id.Port
}

// Port is one port of a Service: where it answers, and what is behind it.
type Port struct {
	ID PortID
	// Number is the port on all virtual IPs.
	Number    uint16
	ClusterIP netip.Addr
	// NodePort is the port on the node's own addresses; 0 means none.
	NodePort uint16
	// ExternalIPs and LoadBalancerIPs are further virtual IPs of this family. Load balancer addresses whose ipMode is
	// Proxy are left out: such traffic has to go through the load balancer.
	ExternalIPs, LoadBalancerIPs []netip.Addr
	// SourceRanges limits who may use the LoadBalancerIPs. None means everybody.
	SourceRanges []netip.Prefix
	// InternalLocal and ExternalLocal are set when the traffic policy for the ClusterIP, or for all the other frontends,
	// is Local.
	InternalLocal, ExternalLocal bool
	// Affinity is how long a client keeps its endpoint after its last new connection; 0 means no session affinity.
	Affinity time.Duration
	// HealthCheckPort is the Service's health check port, 0 if it has none.
	HealthCheckPort uint16

	// Cluster are the endpoints for traffic under policy Cluster, after topology hints. If no endpoint is ready they are
	// the terminating ones that still serve.
	Cluster []Endpoint
	// Local are the endpoints on this node for traffic under policy Local, with the same fall-back, without hints.
	Local []Endpoint
	// Anywhere is set if some node has a usable endpoint. It tells "nobody can serve this" from "not here".
	Anywhere bool
	// Serving are all endpoints that answer connections they already have, whatever policies and hints say; flows to
	// other addresses are dead.
	Serving []netip.AddrPort
}

// Endpoint is an address that serves a port.
type Endpoint struct {
	Addr netip.AddrPort
	// OnNode is set if it runs on this node.
	OnNode bool
	// Terminating is set if it is shutting down.
	Terminating bool
}

// External says whether the port has frontends besides its ClusterIP.
func (p *Port) External() bool {
	return p.NodePort != 0 || len(p.ExternalIPs) > 0 || len(p.LoadBalancerIPs) > 0
}

// Internal are the endpoints for traffic to the ClusterIP.
func (p *Port) Internal() []Endpoint {
	if p.InternalLocal {
		return p.Local
	}
	return p.Cluster
}

// FromOutside are the endpoints for traffic from outside the cluster to the frontends besides the ClusterIP.
func (p *Port) FromOutside() []Endpoint {
	if p.ExternalLocal {
		return p.Local
	}
	return p.Cluster
}

// Admitted are the SourceRanges. A node that they hold may have picked a virtual IP itself as its source, where that is
// configured on one of its devices: then the LoadBalancerIPs are among them. None means everybody.
func (p *Port) Admitted(node netip.Addr) []netip.Prefix {
	from := slices.Clone(p.SourceRanges)
	if slices.ContainsFunc(from, func(r netip.Prefix) bool { return r.Contains(node) }) {
		for _, ip := range p.LoadBalancerIPs {
			from = append(from, netip.PrefixFrom(ip, ip.BitLen()))
		}
	}
	return from
}

// Diff lists the Services that old has and new has not, and the other way round. One that changed is in both lists.
// A nil state is an empty one.
func Diff(old, new *State) (gone, come []*Service) {
	var before, after []*Service
	if old != nil {
		before = old.Services
	}
	if new != nil {
		after = new.Services
	}
	walk(before, after, compareServices,
		func(s *Service) { gone = append(gone, s) },
		func(s *Service) { come = append(come, s) })
	return gone, come
}

func compareServices(a, b *Service) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// walk goes through two lists sorted by order and reports what is in one of them only. Elements at the same place in
// the order that are not identical are reported as gone and come.
func walk[T comparable](old, new []T, order func(a, b T) int, gone, come func(T)) {
	for len(old) > 0 && len(new) > 0 {
		if old[0] == new[0] {
			old, new = old[1:], new[1:]
			continue
		}
		c := order(old[0], new[0])
		if c <= 0 {
			gone(old[0])
			old = old[1:]
		}
		if c >= 0 {
			come(new[0])
			new = new[1:]
		}
	}
	for _, o := range old {
		gone(o)
	}
	for _, n := range new {
		come(n)
	}
}
