// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"context"
	"errors"
	"fmt"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// udp returns the scenarios of UDP Services.
func udp() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "udp-clusterip-and-nodeport", Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
			Given: []store.Object{Pod("c1", "n1"), dnsPod("a1", "n1"), dnsPod("a2", "n2"), dns(NodePort())},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("dns", 53), Proto: "udp", Servers: []string{"a1", "a2"}, Even: true},
				{From: "client", To: spec.NodePortAt("n1", "dns", 53), Proto: "udp", Servers: []string{"a1", "a2"}, Even: true},
			}}},
		},
		{
			ID: "udp-flow-stickiness", Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
			Given: []store.Object{Pod("c1", "n1"), dnsPod("a1", "n1"), dnsPod("a2", "n2"), dns(NodePort())},
			Steps: []spec.Step{
				{Name: "flows begin", Rows: flows(1)},
				{Name: "flows go on", Rows: append(flows(11),
					spec.Row{From: "c1", To: spec.ClusterIPOf("dns", 53), Proto: "udp", Servers: []string{"a1", "a2"}, Even: true},
				)},
			},
		},
		{
			ID: "udp-unconnected-socket", Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
			Given: []store.Object{
				Pod("c1", "n1"), dnsPod("a1", "n1"), dnsPod("a2", "n2"),
				dns(NodePort()), Service("other", Selecting("dns"), UDPPort(54, 5353)),
			},
			Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
				vips := []spec.Target{spec.ClusterIPOf("dns", 53), spec.ClusterIPOf("other", 54)}
				nodePorts := []spec.Target{spec.NodePortAt("n1", "dns", 53), spec.NodePortAt("n2", "dns", 53)}
				for _, family := range w.Lab().Stack().Families() {
					for _, sender := range []struct {
						host    string
						targets []spec.Target
					}{{"c1", append(vips, nodePorts...)}, {"n1", vips}, {"client", nodePorts}} {
						spec.TryDo(eachAnswers(ctx, w, family, sender.host,
							sender.targets)) // each takes its time to fail
					}
				}
				return nil
			}}},
		},
		// It sends from the largest datagram that both families can carry down to one that needs a few
		// fragments, and one whose fragments come in the wrong order.
		{
			ID: "udp-large-and-fragmented", Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
			Given: []store.Object{
				Pod("c1", "n1"), Pod("a1", "n1", App("near"), UDP(5353)), Pod("a2", "n2", App("far"), UDP(5353)),
				Service("near", UDPPort(53, 5353), NodePort()), Service("far", UDPPort(53, 5353), NodePort()),
			},
			Steps: append(largeSteps(3000, 8<<10, 60<<10), spec.Step{Name: "the last piece first",
				Check: EachFamily(func(ctx context.Context, w spec.World, f lab.Family) error {
					return errors.Join(CheckFragments(ctx, w, "c1", spec.ClusterIPOf("near", 53), f),
						CheckFragments(ctx, w, "c1", spec.ClusterIPOf("far", 53), f))
				})}),
		},
		errorsTranslated(),
	}
}

// flows are two flows each from a pod, a node and outside. That a flow which is led anew with each datagram stays with
// one of two pods for twelve has a chance of 2^-11, and that all six do one far below 1e-6.
func flows(times int) []spec.Row {
	var rows []spec.Row
	for i := range 2 {
		for _, r := range []spec.Row{
			{From: "c1", To: spec.ClusterIPOf("dns", 53)},
			{From: "n1", To: spec.ClusterIPOf("dns", 53)},
			{From: "client", To: spec.NodePortAt("n1", "dns", 53)},
		} {
			r.Proto, r.Conn, r.Times, r.Servers = "udp", fmt.Sprintf("%s #%d", r.From, i), times, []string{"a1", "a2"}
			rows = append(rows, r)
		}
	}
	return rows
}

// eachAnswers sends to all targets from one socket, twice, and wants an answer to each request, from where it was sent
// to.
func eachAnswers(ctx context.Context, w spec.World, family lab.Family, host string, targets []spec.Target) error {
	s := OpenSocket(ctx, w, host, family)
	defer s.Close()
	sent := map[string]spec.Target{}
	for _, t := range append(targets, targets...) {
		to := spec.Must(w.Resolve(t, family, "udp"))
		nonce := fmt.Sprintf("%s-%s-%d", host, family, len(sent))
		if err := s.Send(to, nonce); err != nil {
			return fmt.Errorf("%s, %s: %w", host, family, err)
		}
		sent[nonce] = t
	}
	got, err := s.Receive(len(sent))
	if err != nil {
		return fmt.Errorf("%s, %s: %w", host, family, err)
	}
	var errs []error
	for _, r := range got {
		t, asked := sent[r.Nonce]
		delete(sent, r.Nonce)
		if to, err := w.Resolve(t, family, "udp"); !asked || err != nil || to != r.From {
			errs = append(errs, fmt.Errorf("%s sent to %s (%s), and the answer came from %s", host, t, to, r.From))
		}
	}
	for _, t := range sent {
		errs = append(errs, fmt.Errorf("%s sent to %s, and got no answer, %s", host, t, family))
	}
	return errors.Join(errs...)
}

// largeSteps never let two large datagrams wait in one socket, whose buffer has room for one. The pod network is
// narrower than the LAN, and a client outside may have to learn that first: in IPv6 no router makes fragments smaller.
func largeSteps(sizes ...int) []spec.Step {
	steps := []spec.Step{{Name: "the client learns the MTU", Rows: []spec.Row{
		{From: "client", To: spec.NodePortAt("n1", "near", 53), Proto: "udp", Payload: 3000, Family: lab.V4,
			Servers: []string{"a1"}},
		{From: "client", To: spec.NodePortAt("n1", "near", 53), Proto: "udp", Payload: 3000, Family: lab.V6,
			Want: spec.Reply | spec.Unreachable, Servers: []string{"a1"}},
	}}}
	for _, size := range sizes {
		large := func(from string, to spec.Target, by string) spec.Row {
			return spec.Row{From: from, To: to, Proto: "udp", Payload: size, Servers: []string{by}}
		}
		steps = append(steps,
			spec.Step{Name: fmt.Sprintf("%d bytes", size), Rows: []spec.Row{
				large("c1", spec.ClusterIPOf("far", 53), "a2"), large("client", spec.NodePortAt("n1", "near", 53), "a1"),
			}},
			spec.Step{Name: fmt.Sprintf("%d bytes, to a pod of the same node", size), Rows: []spec.Row{
				large("c1", spec.ClusterIPOf("near", 53), "a1"), large("n1", spec.ClusterIPOf("far", 53), "a2"),
			}})
	}
	return steps
}

// errorsTranslated gives each protocol a Service of its own: a client remembers how much the path to an address takes.
func errorsTranslated() spec.Scenario {
	return spec.Scenario{
		ID: "udp-icmp-errors-translated", Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.KernelNAT},
		Given: []store.Object{
			Pod("c1", "n1"), Pod("a2", "n2", App("dns"), UDP(5353), TCP(8080)),
			Service("closed", Selecting("dns"), UDPPort(53, 5999), NodePort()),
			dns(), Service("web", Selecting("dns")),
		},
		Steps: []spec.Step{
			{Name: "a closed port", Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("closed", 53), Proto: "udp", Want: spec.Refused, Times: 3},
				{From: "n1", To: spec.ClusterIPOf("closed", 53), Proto: "udp", Want: spec.Refused, Times: 3},
				{From: "client", To: spec.NodePortAt("n1", "closed", 53), Proto: "udp", Want: spec.Refused, Times: 3},
			}},
			{Name: "a narrow link", Check: func(ctx context.Context, w spec.World) error {
				return CheckPathMTU(ctx, w, "c1", spec.ClusterIPOf("web", 80), spec.ClusterIPOf("dns", 53), "a2",
					w.Lab().Stack().Families()...)
			}},
		},
	}
}
