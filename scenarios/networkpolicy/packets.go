// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	server "github.com/viplab/viplab/lab/cluster/dns"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/traffic"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// unusual returns the scenarios of packets that are not the first of an ordinary TCP connection or UDP flow, and of
// load balancers.
func unusual() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "np-two-questions-at-once", Needs: append([]spec.Feature{spec.KernelNAT}, keepsSource...),
			Given: []store.Object{
				Pod("a1", "n1"), Pod("d2", "n2", App("names"), UDP(server.Port)), Pod("d1", "n1", App("names"), UDP(server.Port)),
				Service("names", UDPPort(server.Port, server.Port)),
				policy("a", pod("a1"), ingress(), egress(allow().on(corev1.ProtocolUDP, server.Port))),
				policy("names", labels("app", "names"), ingress(allow(pods(pod("a1")))), egress()),
			},
			Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
				for _, f := range w.Lab().Stack().Families() {
					spec.TryDo(asksTwice(ctx, w, f)) // an answer that is lost takes all patience, so the first one is enough
				}
				return nil
			}}},
		},
		{
			ID: "np-load-balancer-sources", Needs: append([]spec.Feature{spec.LoadBalancer, spec.ETPLocal}, keepsSource...),
			Given: four(db("a2"), Service("cluster", Selecting("db"), LoadBalancer()),
				Service("local", Selecting("db"), LoadBalancer(), ETPLocal())),
			Steps: []spec.Step{
				{Name: "the client is allowed", Do: append(balanced(), applyFrom("p", labels("app", "db"), "client")),
					Rows: []spec.Row{
						{From: "client", To: spec.IngressOf("local", 80), Servers: []string{"db-a2"}, SeenAs: spec.ClientAddr()},
						{From: "router", To: spec.IngressOf("local", 80), Want: denied},
						{From: "b1", To: spec.HostAt("db-a2", 8080), Want: denied},
						throughCluster("a rule for the client, through a load balancer of policy Cluster"),
					}},
				{Name: "the nodes are allowed", Do: do(applyFrom("p", labels("app", "db"), "n1", "n2", "n3")),
					Rows: []spec.Row{
						{From: "client", To: spec.IngressOf("local", 80), Want: denied},
						{From: "n1", To: spec.HostAt("db-a2", 8080), Servers: []string{"db-a2"}},
						{From: "b1", To: spec.HostAt("db-a2", 8080), Want: denied},
						throughCluster("a rule for the nodes, through a load balancer of policy Cluster"),
					}},
			},
		},
		{
			ID: "np-icmp", Needs: enforced,
			Given: four(policy("p", pod("a1"), ingress(allow(pods(pod("b2"))).on(corev1.ProtocolTCP, 8080)))),
			Steps: []spec.Step{{Check: EachFamily(pings)}},
		},
		{
			ID: "np-sctp-both-ways", Needs: enforced,
			Given: []store.Object{
				echo("a1", "n1", SCTP(8080)), echo("b1", "n1", SCTP(8080)), echo("b2", "n2"), echo("c2", "n2"),
				policy("server", pod("a1"), ingress(allow(pods(pod("b2"))).on(corev1.ProtocolSCTP, 8080)), egress()),
				policy("client", pod("b2"), ingress(), egress(allow(pods(labels())))),
				policy("other", pod("b1"), ingress(allow(pods(pod("b2"))).on(corev1.ProtocolTCP, 8080))),
			},
			Steps: []spec.Step{{Rows: shut("b2", "a1"), Check: EachFamily(associates)}},
		},
	}
}

// asksTwice sends two datagrams at once from a socket of a1, a thousand times, and wants an answer to each.
func asksTwice(ctx context.Context, w spec.World, f lab.Family) error {
	spec.TryDo(w.Settle(ctx))
	to := spec.Must(w.Resolve(spec.ClusterIPOf("names", server.Port), f, "udp"))
	for i := range 1000 {
		if err := asksBoth(ctx, w, f, func(s *Socket) error {
			return errors.Join(s.Send(to, "A"), s.Send(to, "AAAA"))
		}); err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
	}
	return nil
}

func asksBoth(ctx context.Context, w spec.World, f lab.Family, send func(*Socket) error) error {
	s := OpenSocket(ctx, w, "a1", f)
	defer s.Close()
	spec.MustDo(send(s))
	answered := map[string]bool{}
	for _, r := range spec.Try(s.Receive(2)) {
		answered[r.Nonce] = true
	}
	if !answered["A"] || !answered["AAAA"] {
		return fmt.Errorf("of the questions A and AAAA of %s, these were answered: %v", s.Addr(), answered)
	}
	return nil
}

// balanced gives the Services addresses of a load balancer. Packets for cluster come to n1, those for local to n2, the
// node of the endpoint.
func balanced() []spec.Action {
	const local4, local6 = "203.0.113.175", "2001:db8:113::175"
	return append(IngressViaN1("cluster", "203.0.113.176", "2001:db8:113::176"), Ingress("local", local4, local6),
		RouteVia("client", local4, local6, "n2"), RouteVia("router", local4, local6, "n2"))
}

// throughCluster is a row of the client whose address the proxier may have rewritten before the policy is judged, or
// not.
func throughCluster(choice string) spec.Row {
	return spec.Row{From: "client", To: spec.IngressOf("cluster", 80), Want: spec.Reply | denied,
		Servers: []string{"db-a2"}, Choice: choice}
}

// pings sends an echo request from c2 to a1, which is isolated, and to b1, which is not and must receive it.
func pings(ctx context.Context, w spec.World, f lab.Family) error {
	spec.TryDo(w.Settle(ctx))
	c2 := spec.Must(w.Host("c2"))
	caught, err := CapturePackets(w, func() error {
		for _, name := range []string{"a1", "b1"} {
			spec.Must(traffic.Ping(c2.NS, spec.Must(w.Host(name)).Addr(f)))
		}
		return w.Expect(ctx, append(open("b1", "c2"), shut("a1", "c2")...)...) // fences
	}, "a1", "b1")
	if err != nil {
		return err
	}
	arrived := map[string]bool{}
	for _, c := range caught {
		if c.ICMPType == OfFamily[uint8](f, 8, 128) && c.Src.Addr() == c2.Addr(f) &&
			c.Dst.Addr() == spec.Must(w.Host(c.Host)).Addr(f) {
			arrived[c.Host] = true
		}
	}
	if !arrived["b1"] {
		return fmt.Errorf("IP%s: the ping of c2 to b1, which nobody isolates, has not arrived", f)
	}
	w.Note(fmt.Sprintf("an ICMP echo request over IP%s to an isolated pod: arrived=%t", f, arrived["a1"]))
	return nil
}
