// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// firstPort is the first of many ports of one pod. Each is an endpoint, so that a count of the datagrams at each port
// tells all endpoints apart.
const firstPort = 20000

// byPort returns the EndpointSlices of a Service with some consecutive ports of the pod a1 as its endpoints.
func byPort(w spec.World, service string, proto corev1.Protocol, first, count int) []store.Object {
	var all []store.Object
	for port := first; port < first+count; port++ {
		slices := SlicesOf(w, fmt.Sprintf("%s-%d", service, port-first), service, "", int32(port), SliceEndpoint{Host: "a1"})
		for _, s := range slices {
			s.(*discoveryv1.EndpointSlice).Ports[0].Protocol = &proto
		}
		all = append(all, slices...)
	}
	return all
}

// endpoints is how many endpoints the Service of manyEndpoints has.
const endpoints = 1020

func manyEndpoints() spec.Scenario {
	return spec.Scenario{
		ID: "sc-many-endpoints", Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}}, Needs: []spec.Feature{spec.ClusterIP},
		Given: []store.Object{
			Pod("c1", "n1"), Pod("a1", "n1", UDP(firstPort)), Service("web", Selecting(""), UDPPort(80, 80)),
		},
		Steps: []spec.Step{
			{
				Name: "one endpoint",
				Do: []spec.Action{NewAction("one", func(w spec.World) error {
					return w.Apply(byPort(w, "web", corev1.ProtocolUDP, firstPort, 1)...)
				})},
				Rows: []spec.Row{{From: "c1", To: spec.ClusterIPOf("web", 80), Proto: "udp", Servers: []string{"a1"}}},
			},
			{
				Name: "more than a thousand",
				Do: []spec.Action{NewAction("all at once", func(w spec.World) error {
					return w.Apply(byPort(w, "web", corev1.ProtocolUDP, firstPort, endpoints)...)
				})},
				Check: EachFamily(spreadOverAll),
			},
		},
	}
}

// Of so many flows, fair draws leave out no group of neighbours, leave out no more endpoints than the rest of
// mostEndpoints, and give none more than flowsPerEndpoint, but for one case in a billion. So the scenario notices
// neighbours that get nothing, a fifth of all that gets nothing, and an endpoint with ten times its share. It would
// take fifteen times as many flows to notice each single endpoint that gets nothing.
const flows, neighbours, mostEndpoints, flowsPerEndpoint = 2000, 15, endpoints * 4 / 5, 19

func spreadOverAll(ctx context.Context, w spec.World, f lab.Family) error {
	vip := spec.Must(w.Resolve(spec.ClusterIPOf("web", 80), f, "udp"))
	to := make([]netip.AddrPort, flows)
	if !w.Features()[spec.RandomSpread] {
		to = to[:endpoints/10] // nothing is promised of their spread
	}
	for i := range to {
		to[i] = vip
	}
	arrived, err := CountFlows(ctx, w, "c1", "a1", "udp", to...)
	if err != nil || !w.Features()[spec.RandomSpread] {
		return err
	}
	served := 0
	for first := firstPort; first < firstPort+endpoints; first += neighbours {
		group := 0
		for port := first; port < first+neighbours; port++ {
			n := arrived[uint16(port)]
			if n > flowsPerEndpoint {
				return fmt.Errorf("the endpoint of port %d gets %d of %d datagrams (%s)", port, n, flows, f)
			}
			served += min(n, 1)
			group += n
		}
		if group == 0 {
			return fmt.Errorf("the endpoints of ports %d to %d get none of %d datagrams (%s)", first,
				first+neighbours-1, flows, f)
		}
	}
	if served < mostEndpoints {
		return fmt.Errorf("%d of %d endpoints get none of %d datagrams (%s)", endpoints-served, endpoints, flows, f)
	}
	return nil
}

// storms is how often all Services change their endpoints, and asked how many connections each gets in the end: a
// proxier that kept one further endpoint of one Service would be taken for a right one in one case of 256.
const storms, asked = 3, 8

// endpointStorm uses TCP, because old releases of kube-proxy start a program for each UDP endpoint that changes. A
// relay would accept the connections itself.
func endpointStorm() spec.Scenario {
	given := []store.Object{Pod("c1", "n1"), Pod("a1", "n1", TCP(firstPort))}
	for i := range services {
		given = append(given, Service(fmt.Sprintf("s%d", i), Selecting("")))
	}
	return spec.Scenario{
		ID: "sc-endpoint-storm", Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
		Needs: []spec.Feature{spec.ClusterIP, spec.InKernel},
		Given: given,
		Steps: []spec.Step{
			{
				Name: "they have endpoints",
				Do: []spec.Action{NewAction("write all slices", func(w spec.World) error {
					return w.Apply(stormOf(w, 0)...)
				})},
				Rows: []spec.Row{{From: "c1", To: spec.ClusterIPOf("s0", 80), Servers: []string{"a1"}}},
			},
			{
				Name: "they have others in the end",
				Do: []spec.Action{NewAction("change all slices, one by one, over and over", func(w spec.World) error {
					for round := range storms {
						for _, s := range stormOf(w, round+1) {
							if err := w.Apply(s); err != nil {
								return err
							}
						}
					}
					return nil
				})},
				Check: EachFamily(ownEndpointAlone),
			},
		},
	}
}

// portIn returns the port that is the endpoint of the i-th Service after a round of changes.
func portIn(round, i int) int { return firstPort + round*services + i }

func stormOf(w spec.World, round int) []store.Object {
	var all []store.Object
	for i := range services {
		all = append(all, byPort(w, fmt.Sprintf("s%d", i), corev1.ProtocolTCP, portIn(round, i), 1)...)
	}
	return all
}

func ownEndpointAlone(ctx context.Context, w spec.World, f lab.Family) error {
	var to []netip.AddrPort
	for i := range services {
		vip := spec.Must(w.Resolve(spec.ClusterIPOf(fmt.Sprintf("s%d", i), 80), f, "tcp"))
		for range asked {
			to = append(to, vip)
		}
	}
	arrived, err := CountFlows(ctx, w, "c1", "a1", "tcp", to...)
	if err != nil {
		return err
	}
	for i := range services {
		if n := arrived[uint16(portIn(storms, i))]; n != asked {
			return fmt.Errorf("the endpoint of Service s%d gets %d of %d connections (%s); all get %v", i, n, asked, f,
				arrived)
		}
	}
	return nil
}
