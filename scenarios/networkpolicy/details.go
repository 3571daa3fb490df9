// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/lab/sctp"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// details are the scenarios of ports, fragments, errors and the path, as policies meet them.
func details() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "np-source-port", Needs: enforced,
			Given: four(
				Pod("p2", "n2"), Pod("q2", "n2"), // they serve nothing, and have the port 8080 for themselves
				policy("in", pod("a1"), ingress(allow().on(corev1.ProtocolTCP, 8080).on(corev1.ProtocolUDP, 8080))),
				policy("out", pod("q2"), egress(allow().on(corev1.ProtocolTCP, 8080).on(corev1.ProtocolUDP, 8080))),
			),
			Steps: []spec.Step{{Rows: append(fromPort8080("p2", "a1"), fromPort8080("q2", "b1")...)}},
		},
		{
			ID: "np-fragments", Needs: enforced,
			Given: four(policy("p", pod("a1"), ingress(allow(pods(pod("b2"))).on(corev1.ProtocolUDP, 8080)))),
			Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
				for _, f := range w.Lab().Stack().Families() {
					spec.TryDo(CheckFragments(ctx, w, "b2", spec.HostAt("a1", 8080), f))
				}
				a1 := spec.Must(w.Host("a1"))
				caught, err := CaptureRows(ctx, w, []string{"a1"},
					spec.Row{From: "b2", To: spec.HostAt("a1", 8081), Proto: "udp",
						Payload: 4000, Want: denied},
					spec.Row{From: "c2", To: spec.HostAt("a1", 8080), Proto: "udp", Payload: 4000, Want: denied})
				for _, c := range caught {
					if c.Fragment && slices.Contains(a1.Addrs(),
						c.Dst.Addr()) { // a bridge may show it those of others, too
						err = errors.Join(err, fmt.Errorf("a1 has received a piece of what is denied: %s", c.Packet))
					}
				}
				return err
			}}},
		},
		{
			ID: "np-errors-come-back", Needs: enforced,
			Given: four(policy("a", pod("a1"), ingress(), egress(allow(pods(pod("b2"))))), policy("b", pod("b2"), egress())),
			Steps: []spec.Step{{Rows: append(shut("a1", "b2"),
				spec.Row{From: "a1", To: spec.HostAt("b2", 9), Proto: "udp", Want: spec.Refused},
				spec.Row{From: "a1", To: spec.HostAt("b2", 9), Want: spec.Refused},
			)}},
		},
		{
			ID: "np-narrow-path", Needs: append([]spec.Feature{spec.KernelNAT}, keepsSource...),
			Given: []store.Object{
				echo("a1", "n1"), Pod("b2", "n2", App("dns"), UDP(5353), TCP(8080)), echo("c2", "n2"),
				Service("dns", UDPPort(53, 5353)), Service("web", Selecting("dns")),
				policy("a", pod("a1"), ingress(), egress(allow(pods(labels("app", "dns"))))),
				policy("b", labels("app", "dns"), ingress(allow(pods(pod("a1")))), egress()),
			},
			Steps: []spec.Step{{Rows: append(shut("a1", "c2"), shut("c2", "a1")...),
				Check: func(ctx context.Context, w spec.World) error {
					return CheckPathMTU(ctx, w, "a1", spec.ClusterIPOf("web", 80), spec.ClusterIPOf("dns", 53), "b2",
						w.Lab().Stack().Families()...)
				}}},
		},
	}
}

// portsAgain returns the scenarios of SCTP, and of flows that a policy meets again.
func portsAgain() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "np-sctp", Needs: enforced,
			Given: []store.Object{
				echo("a1", "n1", SCTP(8080)), echo("b1", "n1", SCTP(8080)), echo("b2", "n2"), echo("c2", "n2"),
				policy("a", pod("a1"), ingress(allow(pods(pod("b2"))).on(corev1.ProtocolSCTP, 8080))),
				policy("b", pod("b1"), ingress(allow(pods(pod("b2"))).on(corev1.ProtocolSCTP, 8081).on(corev1.ProtocolTCP, 8080))),
			},
			Steps: []spec.Step{{
				Rows:  append(shut("a1", "b2", "c2"), spec.Row{From: "b2", To: spec.HostAt("b1", 8080), Servers: []string{"b1"}}),
				Check: EachFamily(associates),
			}},
		},
		{
			ID: "np-same-ports-again", Needs: enforced,
			Given: four(),
			Steps: []spec.Step{
				{Name: "allowed", Rows: []spec.Row{
					{From: "b2", To: spec.HostAt("a1", 8080), SourcePort: 31901, Servers: []string{"a1"}},
					{From: "b2", To: spec.HostAt("a1", 8080), Proto: "udp", SourcePort: 31901, Servers: []string{"a1"}},
				}},
				{Name: "denied", Do: do(Apply(policy("p", pod("a1"), ingress()))), Rows: []spec.Row{
					{From: "b2", To: spec.HostAt("a1", 8080), SourcePort: 31901, Want: denied},
					{From: "b2", To: spec.HostAt("a1", 8080), Proto: "udp", SourcePort: 31901,
						Want:    spec.Reply | denied,
						Servers: []string{"a1"}, Choice: "a datagram from the port of a flow that was allowed"},
				}},
			},
		},
		{
			ID: "np-connection-outlasts-policy", Needs: enforced,
			Given: four(policy("p", pod("a1"), ingress(allow(pods(pod("b2")))))),
			Steps: []spec.Step{
				step("one policy", nil, ongoing(spec.Row{Servers: []string{"a1"}}), shut("a1", "c2")),
				step("none", do(Delete("NetworkPolicy", "p")), ongoing(spec.Row{Servers: []string{"a1"}}), open("a1", "c2")),
				step("another one", do(Apply(policy("q", pod("a1"), ingress(allow(pods(pod("b2"))))))),
					ongoing(spec.Row{Servers: []string{"a1"}}), shut("a1", "c2")),
			},
		},
		{
			ID: "np-forgotten-flow", Cluster: &spec.ClusterConfig{}, Needs: enforced,
			Given: four(),
			Steps: []spec.Step{
				{Name: "UDP", Check: eachFlow(forgottenFlow)},
				{Name: "TCP", Check: EachFamily(forgottenConnection)},
			},
		},
	}
}

// fromPort8080 are rows from the port that is allowed, to that port and to another.
func fromPort8080(from, to string) []spec.Row {
	var rows []spec.Row
	for _, proto := range []string{"tcp", "udp"} {
		rows = append(rows,
			spec.Row{From: from, To: spec.HostAt(to, 8080), Proto: proto, Servers: []string{to}},
			spec.Row{From: from, To: spec.HostAt(to, 8081), Proto: proto, SourcePort: 8080, Want: denied},
		)
	}
	return rows
}

// associates opens an association from b2 to a1, which is allowed, while b2 and c2 try to open others, which are not:
// no packet of those may arrive.
func associates(ctx context.Context, w spec.World, f lab.Family) error {
	dial := func(from, to string) sctp.Dial {
		return sctp.Dial{From: spec.Must(w.Host(from)).NS, To: spec.Must(w.Resolve(spec.HostAt(to, 8080), f, "tcp"))}
	}
	caught, err := CapturePackets(w, func() error {
		trying, stop := context.WithCancel(ctx)
		defer stop()
		tried := make(chan error, 2)
		for _, from := range []string{"b2", "c2"} {
			d := dial(from, "b1")
			go func() {
				_, err := d.Do(trying)
				tried <- err
			}()
		}
		patient, done := WithPatience(ctx)
		defer done()
		spec.Try(dial("b2", "a1").Do(patient))
		// What the others have sent by now has arrived before the answers to these.
		spec.TryDo(w.Expect(ctx, spec.Row{From: "b2", To: spec.HostAt("b1", 8080), Servers: []string{"b1"}}))
		stop()
		for range 2 {
			if err := <-tried; err == nil {
				return errors.New("an association with b1 was opened, which is denied")
			}
		}
		return nil
	}, "b1")
	b1 := spec.Must(w.Host("b1"))
	for _, c := range caught {
		if c.Proto == "sctp" && c.Dst.Addr() == b1.Addr(f) { // a bridge may show it those of others, too
			err = errors.Join(err, fmt.Errorf("b1 has received %s", c.Packet))
		}
	}
	return err
}
