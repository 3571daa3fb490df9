// SPDX-License-Identifier: Apache-2.0

package external

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// ingress returns the scenarios of status.loadBalancer.ingress beyond one address for each family.
func ingress() []spec.Scenario {
	return append(addressesOfNodes(),
		ingressKinds(), ipModeChanges(), sharedAddress(), besideUnranged(), exchanged())
}

// status sets status.loadBalancer.ingress as it is, addresses of families that the cluster does not have included.
func status(service string, entries ...corev1.LoadBalancerIngress) spec.Action {
	return NewAction("status of Service "+service, func(w spec.World) error {
		return store.UpdateStatus(w.Store(), w.Namespace(), service, func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress = entries
		})
	})
}

// ingressKinds has a Service with a host name alone, and gives it addresses among other entries. Without a mode, an
// address has the mode VIP.
func ingressKinds() spec.Scenario {
	ip := LoadBalancerIP(153)
	name := corev1.LoadBalancerIngress{Hostname: "lb.example.com"}
	broken := []corev1.PortStatus{{Port: 80, Protocol: corev1.ProtocolTCP, Error: ptr.To("example.com/NoQuota")}}
	served := []spec.Row{
		{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a2"}},
		{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a2"}},
	}
	return spec.Scenario{
		ID: "lb-ingress-kinds", Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.LoadBalancer},
		Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2"), Service("web", LoadBalancer())},
		Steps: []spec.Step{
			{Name: "a host name alone", Do: []spec.Action{status("web", name), RouteVia("client", ip.V4, ip.V6, "n1")},
				Rows: served},
			{Name: "addresses of both families beside it", Do: []spec.Action{status("web", name,
				corev1.LoadBalancerIngress{IP: ip.V4, Hostname: "four.example.com", Ports: broken},
				corev1.LoadBalancerIngress{IP: ip.V6},
			)}, Rows: append(FromEach(spec.Row{To: ip, Servers: []string{"a2"}}, "client", "c1", "n1"), served...)},
			{Name: "the host name alone again", Do: []spec.Action{status("web", name)},
				Rows: append(served, spec.Row{From: "client", To: ip, Want: spec.NotServed})},
		},
	}
}

// ipModeChanges has two addresses, which the router has too: it answers what the nodes let pass.
func ipModeChanges() spec.Scenario {
	const port = 154
	one, other := LoadBalancerIP(154), LoadBalancerIP(155)
	one.Port, other.Port = port, port
	modes := func(first, second corev1.LoadBalancerIPMode) spec.Action {
		entries := func(ip spec.Target, mode corev1.LoadBalancerIPMode) []corev1.LoadBalancerIngress {
			return []corev1.LoadBalancerIngress{{IP: ip.V4, IPMode: &mode}, {IP: ip.V6, IPMode: &mode}}
		}
		return status("web", slices.Concat(entries(one, first), entries(other, second))...)
	}
	rows := func(first, second string) []spec.Row {
		return append(FromEach(spec.Row{To: one, Servers: []string{first}}, "c1", "n1"),
			FromEach(spec.Row{To: other, Servers: []string{second}}, "c1", "n1")...)
	}
	const vip, proxy = corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeProxy
	return spec.Scenario{
		ID: "lb-ipmode-changes", Needs: []spec.Feature{spec.LoadBalancer, spec.IPMode},
		Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2"), Service("web", LoadBalancer(), Port(port, 8080))},
		Steps: []spec.Step{
			{Name: "one VIP, one Proxy", Do: []spec.Action{
				AddAddress("router", one.V4, one.V6), AddAddress("router", other.V4, other.V6), Serve("router", "tcp", port),
				modes(vip, proxy),
			}, Rows: rows("a2", "router")},
			{Name: "the other way round", Do: []spec.Action{modes(proxy, vip)}, Rows: rows("router", "a2")},
			{Name: "both Proxy", Do: []spec.Action{modes(proxy, proxy)}, Rows: rows("router", "router")},
			{Name: "both VIP", Do: []spec.Action{modes(vip, vip)}, Rows: rows("a2", "a2")},
		},
	}
}

// addressesOfNodes returns the scenarios of Services on addresses of nodes.
func addressesOfNodes() []spec.Scenario {
	// As load balancers do that run on the nodes.
	secondary := addressOfNode(spec.Secondary, 158, LoadBalancer(), Ingress)
	secondary.ID, secondary.Needs = "lb-ip-of-node", []spec.Feature{spec.LoadBalancer}
	// In a cluster of its own, since a node that has the first address of another one itself loses it.
	first := addressOfNode(spec.Primary, 159, NodePort(), func(service, v4, v6 string) spec.Action {
		return Edit(service, ExternalIPs(v4, v6))
	})
	first.ID, first.Needs = "externalip-node-address", []spec.Feature{spec.ExternalIPs}
	first.Cluster = &spec.ClusterConfig{Nodes: []string{"n1", "n2"}}
	return []spec.Scenario{secondary, first}
}

// addressOfNode gives a Service an address of n2. A daemon of n2 has another port. The pod is on n3, which a node that
// has taken the address reaches, too.
func addressOfNode(which spec.HostAddr, port uint16, kind ServiceOption,
	claim func(service, v4, v6 string) spec.Action) spec.Scenario {
	to, daemon := spec.HostAt("n2", port).AtAddr(which), spec.HostAt("n2", 8000+port).AtAddr(which)
	everybody := []string{"client", "c1", "c2", "n1", "n2"}
	return spec.Scenario{
		Given: []store.Object{Pod("c1", "n1"), Pod("c2", "n2"), Backend("a3", "n3"),
			Service("web", kind, Port(int32(port), 8080))},
		Steps: []spec.Step{{
			Name: "its port",
			Do: []spec.Action{
				Serve("n2", "tcp", daemon.Port),
				{Name: "an address of n2 is the Service's", Run: func(ctx context.Context, w spec.World) error {
					ip := ResolveLiteral(w, to, "tcp")
					RunActions(ctx, w, claim("web", ip.V4, ip.V6))
					return nil
				}},
			},
			Rows: FromEach(spec.Row{To: to, Servers: []string{"a3"}}, everybody...),
		}, {
			Name: "its other ports", Rows: FromEach(spec.Row{To: daemon, Servers: []string{"n2"}}, everybody...),
		}},
	}
}

// sharedAddress has two Services on one address, told apart by port, one of which goes.
func sharedAddress() spec.Scenario {
	ip := LoadBalancerIP(156)
	at := func(port uint16, row spec.Row) []spec.Row {
		row.To = ip
		row.To.Port = port
		return FromEach(row, "client", "c1", "n1")
	}
	one, other := at(80, spec.Row{Servers: []string{"a1"}}), at(81, spec.Row{Servers: []string{"a2"}})
	ends := spec.Row{From: "client", To: other[0].To, Conn: "long", Servers: []string{"a2"}}
	return spec.Scenario{
		ID: "lb-shared-address", Needs: []spec.Feature{spec.LoadBalancer},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a1", "n1", App("one")), Backend("a2", "n2", App("other")),
			Service("one", LoadBalancer()), Service("other", LoadBalancer(), Port(81, 8080)),
		},
		Steps: []spec.Step{
			{Name: "both", Do: append(IngressViaN1("one", ip.V4, ip.V6), Ingress("other", ip.V4, ip.V6)),
				Rows: slices.Concat(one, other, []spec.Row{ends})},
			{Name: "one goes", Do: []spec.Action{Delete("Service", "one")},
				Rows: slices.Concat(other, []spec.Row{ends}, at(80, spec.Row{Want: spec.NotServed}))},
			{Name: "it is back", Do: []spec.Action{Apply(Service("one", LoadBalancer())), Ingress("one", ip.V4, ip.V6)},
				Rows: slices.Concat(one, other, []spec.Row{ends})},
		},
	}
}

// besideUnranged has a Service with ranges on two ports and one without on another port of the same address. Then they
// change roles.
func besideUnranged() spec.Scenario {
	ip := LoadBalancerIP(157)
	ranges := SourceRanges(ClientRange4, ClientRange6)
	at := func(port uint16, ranged bool) []spec.Row {
		others := spec.Row{Servers: []string{"a2"}}
		if ranged {
			others = spec.Row{Want: DropOrReject}
		}
		stranger := others
		stranger.From, stranger.Source = "client", OtherClientAddr
		rows := append(FromEach(others, "c1", "n1"), stranger, spec.Row{From: "client", Servers: []string{"a2"}})
		var all []spec.Row
		for _, proto := range []string{"tcp", "udp"} {
			for _, r := range rows {
				r.To, r.Proto = ip, proto
				r.To.Port = port
				all = append(all, r)
			}
		}
		return all
	}
	service := func(name string, port int32, options ...ServiceOption) *corev1.Service {
		return Service(name, append(options, Selecting("web"), LoadBalancer(), Port(port, 8080), UDPPort(port, 8081))...)
	}
	return spec.Scenario{
		ID: "sr-beside-unranged", Needs: []spec.Feature{spec.LoadBalancer, spec.SourceRanges},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a2", "n2", UDP(8081)), service("one", 80, ranges), service("other", 81),
		},
		Steps: []spec.Step{
			{Name: "one has ranges", Do: append(IngressViaN1("one", ip.V4, ip.V6), Ingress("other", ip.V4, ip.V6)),
				Rows: append(at(80, true), at(81, false)...)},
			{Name: "the other has them", Do: []spec.Action{Edit("one", SourceRanges()), Edit("other", ranges)},
				Rows: append(at(80, false), at(81, true)...)},
		},
	}
}

// exchanged has two Services that exchange their load balancer's addresses, external IPs and nodePorts, in as many
// updates as the API needs.
func exchanged() spec.Scenario {
	balanced, external := []spec.Target{LoadBalancerIP(158), LoadBalancerIP(159)}, []spec.Target{ExternalIP(158),
		ExternalIP(159)}
	nodePorts := []uint16{30014, 30015, 30016}
	rows := func(pods ...string) []spec.Row {
		var rows []spec.Row
		for i, pod := range pods {
			for _, proto := range []string{"tcp", "udp"} {
				served := spec.Row{Proto: proto, Servers: []string{pod}}
				for _, to := range []spec.Target{balanced[i], external[i], spec.HostAt("n1", nodePorts[i])} {
					served.To = to
					rows = append(rows, FromEach(served, "client", "c1")...)
				}
			}
		}
		return rows
	}
	gets := func(service string, i int) []spec.Action {
		return []spec.Action{
			Ingress(service, balanced[i].V4, balanced[i].V6),
			Edit(service, ExternalIPs(external[i].V4, external[i].V6)),
			Edit(service, NodePorts(int32(nodePorts[i]), int32(nodePorts[i]))),
		}
	}
	service := func(name string) *corev1.Service {
		return Service(name, LoadBalancer(), Port(80, 8080), UDPPort(80, 8081))
	}
	return spec.Scenario{
		ID: "lb-addresses-exchanged", NodePorts: nodePorts,
		Needs: []spec.Feature{spec.LoadBalancer, spec.ExternalIPs, spec.NodePort},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a1", "n1", App("one"), UDP(8081)), Backend("a2", "n2", App("other"), UDP(8081)),
			service("one"), service("other"),
		},
		Steps: []spec.Step{
			{Name: "before", Do: slices.Concat(gets("one", 0), gets("other", 1), routed(slices.Concat(balanced, external)...)),
				Rows: rows("a1", "a2")},
			{Name: "after", Do: slices.Concat([]spec.Action{Edit("one", NodePorts(30016, 30016))}, gets("other", 0),
				gets("one", 1)), Rows: rows("a2", "a1")},
		},
	}
}
