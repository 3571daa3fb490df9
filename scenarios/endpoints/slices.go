// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// sliceContents returns the scenarios of what an EndpointSlice may say of its endpoints.
func sliceContents() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "ep-first-address-alone", Needs: []spec.Feature{spec.ClusterIP},
			Given: behindSlices(Service("web", Selecting(""))),
			Steps: []spec.Step{{
				Do: []spec.Action{Slice("web", "web", "", 8080,
					SliceEndpoint{Host: "a1", Further: []string{"a2"}}, SliceEndpoint{Host: "a3"})},
				Rows: []spec.Row{even("c1", "web", "a1", "a3")},
			}},
		},
		conditionsUnset(),
		{
			ID: "ep-ready-overrides", Needs: []spec.Feature{spec.ClusterIP},
			Given: behindSlices(Service("ending", Selecting("")), Service("silent", Selecting(""))),
			Steps: []spec.Step{{
				Do: []spec.Action{
					Slice("ending", "ending", "", 8080, SliceEndpoint{Host: "a1", State: Running},
						given("a2", discoveryv1.EndpointConditions{Ready: yes, Serving: yes, Terminating: yes})),
					Slice("silent", "silent", "", 8080, SliceEndpoint{Host: "a1", State: Running},
						given("a2", discoveryv1.EndpointConditions{Ready: yes, Serving: no})),
				},
				Rows: []spec.Row{even("c1", "ending", "a1", "a2"), even("c1", "silent", "a1", "a2")},
			}},
		},
		{
			ID: "ep-serving-not-ready", Needs: []spec.Feature{spec.ClusterIP},
			Given: behindSlices(Service("beside", Selecting("")), Service("alone", Selecting(""))),
			Steps: []spec.Step{{
				Do: []spec.Action{
					Slice("beside", "beside", "", 8080, SliceEndpoint{Host: "a1", State: Running}, servingUnready("a2")),
					Slice("alone", "alone", "", 8080, servingUnready("a1"),
						given("a2", discoveryv1.EndpointConditions{Ready: no, Serving: yes})),
				},
				Rows: append(WantRefused(spec.Row{From: "c1", To: spec.ClusterIPOf("alone", 80), Times: 3}),
					only("c1", "beside", "a1")),
			}},
		},
		{
			ID: "ep-terminating-from-the-start", Needs: []spec.Feature{spec.ClusterIP, spec.TerminatingFallback},
			Given: behindSlices(),
			Steps: []spec.Step{
				{
					Name: "beside one that is ready",
					Do: []spec.Action{
						Slice("web", "web", "", 8080, SliceEndpoint{Host: "a1", State: Ending},
							SliceEndpoint{Host: "a2", State: Running}, SliceEndpoint{Host: "a3", State: Dying}),
						settled, Apply(Service("web", Selecting(""))),
					},
					Rows: []spec.Row{only("c1", "web", "a2")},
				},
				{Name: "alone", Do: []spec.Action{Delete("Service", "web"), DeleteSlice("web"), settled,
					Slice("web", "web", "", 8080, SliceEndpoint{Host: "a1", State: Ending},
						SliceEndpoint{Host: "a3", State: Dying}),
					Apply(Service("web", Selecting("")))},
					Rows: []spec.Row{only("c1", "web", "a1")}},
			},
		},
		oneAddressTwoPorts(),
		oddAddresses(),
	}
}

var yes, no = ptr.To(true), ptr.To(false)

// behindSlices are a client on n1 and a pod on each node, and objects beside them.
func behindSlices(beside ...store.Object) []store.Object {
	return append([]store.Object{Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2"), Backend("a3", "n3")},
		beside...)
}

// given is an endpoint with exactly these conditions.
func given(host string, conditions discoveryv1.EndpointConditions) SliceEndpoint {
	return SliceEndpoint{Host: host, Conditions: &conditions}
}

func servingUnready(host string) SliceEndpoint {
	return given(host, discoveryv1.EndpointConditions{Ready: no, Serving: yes, Terminating: no})
}

func conditionsUnset() spec.Scenario {
	return spec.Scenario{
		ID: "ep-conditions-unset", Needs: []spec.Feature{spec.ClusterIP, spec.TerminatingFallback},
		Given: behindSlices(Service("ready", Selecting("")), Service("serving", Selecting(""))),
		Steps: []spec.Step{{
			Do: []spec.Action{
				Slice("ready", "ready", "", 8080, SliceEndpoint{Host: "a1", State: Running},
					given("a2", discoveryv1.EndpointConditions{Terminating: yes}),
					given("a3", discoveryv1.EndpointConditions{Serving: no})),
				Slice("serving", "serving", "", 8080,
					given("a1", discoveryv1.EndpointConditions{Ready: no, Terminating: yes}),
					SliceEndpoint{Host: "a2", State: Dying}),
			},
			Rows: []spec.Row{even("c1", "ready", "a1", "a2", "a3"), only("c1", "serving", "a1")},
		}},
	}
}

// oneAddressTwoPorts tells the two endpoints apart by host-network pods, which share the address of their node.
func oneAddressTwoPorts() spec.Scenario {
	return spec.Scenario{
		ID: "ep-one-address-two-ports", Needs: []spec.Feature{spec.ClusterIP},
		Given: []store.Object{
			Pod("c1", "n1"), Pod("h1", "n2", HostNetwork(), TCP(18130)), Pod("h2", "n2", HostNetwork(), TCP(18131)),
			Service("web", Selecting("")),
		},
		Steps: []spec.Step{
			{
				Name: "two ports",
				Do:   []spec.Action{Endpoints("one", "web", "", 18130, "n2"), Endpoints("two", "web", "", 18131, "n2")},
				Rows: []spec.Row{even("c1", "web", "h1", "h2")},
			},
			{Name: "one of them goes", Do: []spec.Action{DeleteSlice("one")}, Rows: []spec.Row{only("c1", "web", "h2")}},
		},
	}
}

// oddAddresses has endpoints that the API admits and that no host can have: multicast, broadcast, reserved ranges. The
// API itself refuses loopback, link-local and unspecified addresses.
func oddAddresses() spec.Scenario {
	odd := map[discoveryv1.AddressType][]string{
		discoveryv1.AddressTypeIPv4: {"239.1.2.3", "255.255.255.255", "240.0.0.1", "0.1.2.3"},
		discoveryv1.AddressTypeIPv6: {"ff05::1", "ff0e::1", "100::1", "::1.2.3.4"},
	}
	return spec.Scenario{
		ID: "ep-odd-addresses", Needs: []spec.Feature{spec.ClusterIP},
		Given: behindSlices(Service("odd", Selecting(""), Affinity())),
		Steps: []spec.Step{{
			Do: []spec.Action{
				ChangedSlice(func(s *discoveryv1.EndpointSlice) {
					for _, a := range odd[s.AddressType] {
						s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
					}
				}, "odd", "odd", 8080),
				Apply(Service("web"), Service("later", Selecting("web"))),
			},
			Rows: []spec.Row{even("c1", "web", "a1", "a2", "a3"), even("c1", "later", "a1", "a2", "a3")},
		}},
	}
}

// udpFlows are n kept flows to the Service web.
func udpFlows(n int, servers ...string) []spec.Row {
	var rows []spec.Row
	for i := range n {
		rows = append(rows, spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Proto: "udp",
			Conn: fmt.Sprintf("flow-%d", i), Servers: servers})
	}
	return rows
}

func overUDP(s *discoveryv1.EndpointSlice) { s.Ports[0].Protocol = ptr.To(corev1.ProtocolUDP) }
