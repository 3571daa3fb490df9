// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// icmpErrors returns the scenarios of ICMP errors that belong to connections of Services.
func icmpErrors() []spec.Scenario {
	return []spec.Scenario{largeAnswers(), knownSenders(), nodesAreTold()}
}

// largeAnswers has a client whose address is reached through the router and a narrow link. Each frontend has a pod of
// its own, since a pod remembers the path MTU to a node that masquerades.
func largeAnswers() spec.Scenario {
	client := ExternalIP(163)
	client.Port = 0
	lbNear, lbFar := LoadBalancerIP(163), LoadBalancerIP(164)
	large := func(to spec.Target, pod string) spec.Row {
		return spec.Row{From: "client", Source: client, To: to, Payload: 20000, Servers: []string{pod}}
	}
	return spec.Scenario{
		ID: "err-large-answer", Needs: []spec.Feature{spec.NodePort, spec.LoadBalancer, spec.ETPLocal},
		Given: []store.Object{
			Backend("a1", "n1", App("near")), Backend("a2", "n2", App("far")), Backend("b1", "n1", App("lb-near")),
			Backend("b2", "n2", App("lb-far")), Backend("d1", "n1", App("local")),
			Pod("h1", "n1", HostNetwork(), App("host"), TCP(18163)),
			Service("near", NodePort()), Service("far", NodePort()), Service("local", NodePort(), ETPLocal()),
			Service("lb-near", LoadBalancer()), Service("lb-far", LoadBalancer()), Service("host", NodePort(), Port(80, 18163)),
		},
		Steps: []spec.Step{{
			Do: slices.Concat(IngressViaN1("lb-near", lbNear.V4, lbNear.V6), IngressViaN1("lb-far", lbFar.V4, lbFar.V6),
				[]spec.Action{
					// The router sends its errors to the address that answers.
					RouteVia("router", lbNear.V4, lbNear.V6, "n1"), RouteVia("router", lbFar.V4, lbFar.V6, "n1"),
					AddAddress("client", client.V4, client.V6), NarrowWay("n1", "client", client),
				}),
			Rows: []spec.Row{
				large(spec.NodePortAt("n1", "near", 80), "a1"), large(spec.NodePortAt("n1", "far", 80), "a2"),
				large(spec.NodePortAt("n1", "local", 80), "d1"), large(spec.NodePortAt("n1", "host", 80), "h1"),
				large(lbNear, "b1"), large(lbFar, "b2"),
			},
		}},
	}
}

// knownSenders captures the errors that a pod and a client outside get about a closed port and about a narrow link.
func knownSenders() spec.Scenario {
	web, dns := LoadBalancerIP(165), LoadBalancerIP(166)
	dns.Port = 53
	closed := func(from string, targets ...spec.Target) []spec.Row {
		var rows []spec.Row
		for _, to := range targets {
			rows = append(rows, spec.Row{From: from, To: to, Proto: "udp", Want: spec.Refused})
		}
		return rows
	}
	inside := []spec.Target{spec.ClusterIPOf("web", 80), spec.ClusterIPOf("dns", 53)}
	return spec.Scenario{
		ID: "err-known-sender", Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.LoadBalancer, spec.KernelNAT},
		Given: []store.Object{
			Pod("c1", "n1"), Pod("a2", "n2", App("web"), TCP(8080), UDP(5353)),
			Service("web", LoadBalancer()), Service("dns", Selecting("web"), LoadBalancer(), UDPPort(53, 5353)),
			Service("closed", Selecting("web"), NodePort(), UDPPort(53, 5999)),
		},
		Steps: []spec.Step{
			{
				Name: "a closed port",
				Do:   append(IngressViaN1("web", web.V4, web.V6), IngressViaN1("dns", dns.V4, dns.V6)...),
				Check: func(ctx context.Context, w spec.World) error {
					vip, nodePort := spec.ClusterIPOf("closed", 53), spec.NodePortAt("n1", "closed", 53)
					rows := append(closed("c1", vip, nodePort), closed("client", nodePort)...)
					return comeFromKnown(w, func() error { return w.Expect(ctx, rows...) }, vip, nodePort)
				},
			},
			{Name: "a narrow link, for a pod", Check: func(ctx context.Context, w spec.World) error {
				return comeFromKnown(w, func() error {
					return CheckPathMTU(ctx, w, "c1", inside[0], inside[1], "a2", w.Lab().Stack().Families()...)
				}, inside...)
			}},
			{Name: "a narrow link, for a client outside", Check: func(ctx context.Context, w spec.World) error {
				return comeFromKnown(w, func() error {
					return CheckPathMTU(ctx, w, "client", web, dns, "a2", w.Lab().Stack().Families()...)
				}, web, dns)
			}},
		},
	}
}

// comeFromKnown requires of the ICMP errors about targets that c1 and the client get while f runs that they quote what
// was asked, and come from the address that was asked, from n1, or from the router.
func comeFromKnown(w spec.World, f func() error, targets ...spec.Target) error {
	asked := map[netip.AddrPort]bool{}
	for _, t := range targets {
		for _, proto := range []string{"tcp", "udp"} {
			if _, err := w.Resolve(t, w.Lab().Stack().Families()[0], proto); err == nil {
				for _, a := range ResolveAll(w, t, proto) {
					asked[a] = true
				}
			}
		}
	}
	pod := spec.Must(w.Host("a2")).Addrs()
	known := slices.Concat(spec.Must(w.Host("n1")).Addrs(), w.Lab().Router().Addrs())
	errors := 0
	for _, c := range spec.Try(CapturePackets(w, f, "c1", "client")) {
		switch {
		case c.Quoted == nil:
		case slices.Contains(pod, c.Quoted.Dst.Addr()):
			return fmt.Errorf("%s is told of an address that it has not asked: %s", c.Host, c.Packet)
		case !asked[c.Quoted.Dst]:
		case c.Src.Addr() != c.Quoted.Dst.Addr() && !slices.Contains(known, c.Src.Addr()):
			return fmt.Errorf("%s is told by an address that it cannot know: %s", c.Host, c.Packet)
		default:
			errors++
		}
	}
	if errors == 0 {
		return spec.HarnessErrorf("the capture holds no ICMP error about %v", targets)
	}
	return nil
}

// nodesAreTold has clients on nodes. A pod in its node's network is a process of the node. It has a cluster of its own:
// an address that comes or goes makes the kernel look up the routes of all sockets anew (rt_cache_flush), so that a
// client learns of the path MTU by chance.
func nodesAreTold() spec.Scenario {
	return spec.Scenario{
		ID: "err-nodes-are-told", Needs: []spec.Feature{spec.ClusterIP, spec.KernelNAT}, Cluster: &spec.ClusterConfig{},
		Given: []store.Object{
			Pod("a2", "n2", App("web"), TCP(8080), UDP(5353)), Service("web"),
			Service("dns", Selecting("web"), UDPPort(53, 5353)), Service("closed", Selecting("web"), UDPPort(53, 5999)),
		},
		Steps: []spec.Step{
			{Name: "a closed port", Rows: FromEach(spec.Row{To: spec.ClusterIPOf("closed", 53), Proto: "udp",
				Want: spec.Refused, Times: 2}, "n1", "n2")},
			{Name: "a narrow link", Check: func(ctx context.Context, w spec.World) error {
				return CheckPathMTU(ctx, w, "n1", spec.ClusterIPOf("web", 80), spec.ClusterIPOf("dns", 53), "a2",
					w.Lab().Stack().Families()...)
			}},
		},
	}
}
