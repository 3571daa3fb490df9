// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/viplab/viplab/internal/lab/trace"
	"github.com/viplab/viplab/internal/suite/netpol/oracle"
	"github.com/viplab/viplab/lab/cluster/store"
)

// Explain adds to the end of a traced packet what the Services and NetworkPolicies of the cluster say of it: that a
// Service has no endpoint for it, or which policies forbid the connection. It adds nothing to packets that were
// delivered. It is right about programs that do what the API says; a rule that is wrong shows in the walk.
func Explain(state *store.Snapshot, t *trace.Traced) {
	end := t.Walk.End
	if end == nil || end.Outcome == trace.Delivered {
		return
	}
	now := t.Walk.Last()
	if end.Why = unserved(state, t, now.Dst, end.Place); end.Why != "" {
		return
	}
	if end.Cause != trace.CauseRule && end.Cause != trace.CauseUnknown {
		return
	}
	if end.Why = forbidden(state, t, now.Dst); end.Why != "" {
		end.Cause = trace.CausePolicy
	}
}

// forbidden says which policies forbid a connection, and nothing if none does.
func forbidden(state *store.Snapshot, t *trace.Traced, to netip.AddrPort) string {
	c := oracle.FromSnapshot(state)
	end := func(a netip.Addr) oracle.End {
		e := oracle.End{Addr: a}
		for _, p := range c.Pods {
			if slices.Contains(p.Addrs, a) {
				e.Pod = p
			}
		}
		return e
	}
	f := oracle.Flow{
		From: end(t.Source.Addr()), To: end(to.Addr()), Protocol: corev1.Protocol(strings.ToUpper(t.Proto)),
		Port: int32(to.Port()),
	}
	j := c.Judge(f)
	what := fmt.Sprintf("%s port %d", f.Protocol, f.Port)
	switch {
	case !j.Egress.Allowed():
		return isolation(j.Egress, f.From, "egress", fmt.Sprintf("%s of %s", what, name(f.To)))
	case !j.Ingress.Allowed():
		return isolation(j.Ingress, f.To, "ingress", fmt.Sprintf("%s from %s", what, name(f.From)))
	}
	return ""
}

// isolation says that the policies of one end allow nothing of this.
func isolation(s oracle.Side, own oracle.End, direction, what string) string {
	if len(s.Isolating) == 1 {
		return fmt.Sprintf("The NetworkPolicy %s isolates %s for %s, and does not allow %s.", policies(s.Isolating),
			name(own), direction, what)
	}
	return fmt.Sprintf("The NetworkPolicies %s isolate %s for %s, and none of them allows %s.", policies(s.Isolating),
		name(own), direction, what)
}

func policies(all []*networkingv1.NetworkPolicy) string {
	var names []string
	for _, p := range all {
		names = append(names, store.KeyOf(p).String())
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func name(e oracle.End) string {
	if e.Pod != nil {
		return e.Pod.Namespace + "/" + e.Pod.Name
	}
	return e.Addr.String()
}

// unserved says why a Service does not serve a packet that has ended at a place with the Service's own address, and
// nothing if that is not so.
func unserved(state *store.Snapshot, t *trace.Traced, to netip.AddrPort, place string) string {
	for _, s := range state.Services {
		for _, p := range s.Spec.Ports {
			if !strings.EqualFold(string(p.Protocol), t.Proto) {
				continue
			}
			inside := slices.Contains(s.Spec.ClusterIPs, to.Addr().String())
			balancer := slices.ContainsFunc(s.Status.LoadBalancer.Ingress, has(to.Addr()))
			outside := balancer || slices.Contains(s.Spec.ExternalIPs, to.Addr().String())
			switch {
			case (inside || outside) && uint16(p.Port) == to.Port():
			case p.NodePort != 0 && uint16(p.NodePort) == to.Port() && to == t.Address:
				outside = true
			default:
				continue
			}
			return missing(state, s, &p, t.Source.Addr(), place, outside, balancer)
		}
	}
	return ""
}

// has returns what reports whether an address is that of a load balancer.
func has(a netip.Addr) func(corev1.LoadBalancerIngress) bool {
	return func(i corev1.LoadBalancerIngress) bool { return i.IP == a.String() }
}

// Receivers returns the addresses of the endpoints of Services that have an address as their own, or its port as a node
// port: those that may get packets which are sent there.
func Receivers(state *store.Snapshot, to netip.AddrPort) (all []netip.Addr) {
	serves := map[store.Key]bool{}
	for _, s := range state.Services {
		serves[store.KeyOf(s)] = slices.Contains(s.Spec.ClusterIPs, to.Addr().String()) ||
			slices.Contains(s.Spec.ExternalIPs, to.Addr().String()) ||
			slices.ContainsFunc(s.Status.LoadBalancer.Ingress, has(to.Addr())) ||
			slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool {
				return p.NodePort != 0 && uint16(p.NodePort) == to.Port()
			})
	}
	for _, slice := range state.EndpointSlices {
		if !serves[store.Key{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}] {
			continue
		}
		for _, e := range slice.Endpoints {
			for _, text := range e.Addresses {
				if a, err := netip.ParseAddr(text); err == nil {
					all = append(all, a)
				}
			}
		}
	}
	return all
}

// missing says what a port of a Service lacks for a packet.
func missing(state *store.Snapshot, s *corev1.Service, p *corev1.ServicePort, from netip.Addr, place string, outside,
	balancer bool) string {
	key := store.KeyOf(s)
	internal, field := s.Spec.InternalTrafficPolicy, "internalTrafficPolicy"
	local := internal != nil && *internal == corev1.ServiceInternalTrafficPolicyLocal
	if outside {
		local = s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
		field = "externalTrafficPolicy"
	}
	ready, here := endpoints(state, key, p, place)
	switch {
	case balancer && len(s.Spec.LoadBalancerSourceRanges) > 0 && !within(s.Spec.LoadBalancerSourceRanges, from):
		return fmt.Sprintf("The loadBalancerSourceRanges of the Service %s do not contain %s.", key, from)
	case ready == 0:
		return fmt.Sprintf("The Service %s has no ready endpoint.", key)
	case local && here == 0:
		return fmt.Sprintf("The Service %s has no ready endpoint on %s, and its %s is Local.", key, place, field)
	}
	return ""
}

func within(ranges []string, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(text string) bool {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		return err == nil && p.Contains(a)
	})
}

// endpoints counts the ready endpoints of a Service's port: all, and those on a node.
func endpoints(state *store.Snapshot, service store.Key, port *corev1.ServicePort, node string) (ready, here int) {
	for _, slice := range state.EndpointSlices {
		if slice.Namespace != service.Namespace || slice.Labels[discoveryv1.LabelServiceName] != service.Name ||
			!slices.ContainsFunc(slice.Ports, func(p discoveryv1.EndpointPort) bool { return pointed(p.Name) == port.Name }) {
			continue
		}
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready {
				continue
			}
			ready++
			if pointed(e.NodeName) == node {
				here++
			}
		}
	}
	return ready, here
}
