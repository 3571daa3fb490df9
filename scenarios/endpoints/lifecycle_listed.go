// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// conditionDefaults leaves out what the API itself refuses: a port 0 and an endpoint without an address.
func conditionDefaults() spec.Scenario {
	return spec.Scenario{
		ID: "ep-condition-defaults-and-junk", Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.ETPLocal},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2"), Service("web", Selecting(""), NodePort(), ETPLocal()),
		},
		Steps: []spec.Step{{
			Do: []spec.Action{
				Slice("sound", "web", "", 8080, SliceEndpoint{Host: "a1"}, SliceEndpoint{Host: "a2", NoNodeName: true}), junk,
			},
			Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a1", "a2"}, Even: true},
				{From: "client", To: spec.NodePortAt("n1", "web", 80), Times: lifecycleDraws, Servers: []string{"a1"}},
				{From: "client", To: spec.NodePortAt("n2", "web", 80), Times: 3, Want: spec.Silence},
			},
		}},
	}
}

// junk are slices of the Service web of which no proxy can make an endpoint: names instead of addresses, a port without
// a number, a port that the Service does not have, another protocol, no ports, a family that the cluster does not have.
var junk = spec.Action{Name: "write EndpointSlices that lead nowhere",
	Run: func(_ context.Context, w spec.World) error {
		numbered := discoveryv1.EndpointPort{Port: ptr.To[int32](8080)}
		ofFamily := map[lab.Family]discoveryv1.AddressType{lab.V4: discoveryv1.AddressTypeIPv4,
			lab.V6: discoveryv1.AddressTypeIPv6}
		addresses := map[lab.Family]string{lab.V4: "192.0.2.1", lab.V6: "2001:db8::1"}
		slices := []store.Object{junkSlice("names", discoveryv1.AddressTypeFQDN, "web.example.org", numbered)}
		has := map[lab.Family]bool{}
		for _, f := range w.Lab().Stack().Families() {
			has[f] = true
			slices = append(slices,
				junkSlice("numberless-"+f.String(), ofFamily[f], addresses[f], discoveryv1.EndpointPort{}),
				junkSlice("other-port-"+f.String(), ofFamily[f], addresses[f],
					discoveryv1.EndpointPort{Name: ptr.To("other"), Port: numbered.Port}),
				junkSlice("other-protocol-"+f.String(), ofFamily[f], addresses[f],
					discoveryv1.EndpointPort{Protocol: ptr.To(corev1.ProtocolUDP), Port: numbered.Port}),
				junkSlice("portless-"+f.String(), ofFamily[f], addresses[f]),
			)
		}
		for f, kind := range ofFamily {
			if !has[f] {
				slices = append(slices, junkSlice("other-family", kind, addresses[f], numbered))
			}
		}
		return w.Apply(slices...)
	}}

func junkSlice(name string, kind discoveryv1.AddressType, address string,
	ports ...discoveryv1.EndpointPort) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		TypeMeta:    metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta:  metav1.ObjectMeta{Name: "junk-" + name, Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: kind, Ports: ports,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}},
	}
}

// ipReuse lists one address in two slices, whose names put one first for one Service and the other for the other. One
// of the two pods always terminates: of two that do not, kube-proxy takes either, as its source says.
func ipReuse() spec.Scenario {
	return spec.Scenario{
		ID: "ep-ip-reuse", Needs: []spec.Feature{spec.ClusterIP},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2"), Service("early", Selecting("")),
			Service("late", Selecting("")),
		},
		Steps: []spec.Step{{
			Do: []spec.Action{
				Slice("early-1", "early", "", 8080, SliceEndpoint{Host: "a1", State: Running},
					SliceEndpoint{Host: "a2", State: Running}),
				Slice("early-2", "early", "", 8080, SliceEndpoint{Host: "a1", State: Ending},
					SliceEndpoint{Host: "a2", State: Dying}),
				Slice("late-1", "late", "", 8080, SliceEndpoint{Host: "a1", State: Dying},
					SliceEndpoint{Host: "a2", State: Ending}),
				Slice("late-2", "late", "", 8080, SliceEndpoint{Host: "a1", State: Running},
					SliceEndpoint{Host: "a2", State: Running}),
			},
			Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("early", 80), Servers: []string{"a1", "a2"}, Even: true},
				{From: "c1", To: spec.ClusterIPOf("late", 80), Servers: []string{"a1", "a2"}, Even: true},
			},
		}},
	}
}

// eventOrder deletes and applies one at a time, so that a proxier sees each change alone.
func eventOrder() spec.Scenario {
	return spec.Scenario{
		ID: "ep-event-order", Needs: []spec.Feature{spec.ClusterIP},
		Given: []store.Object{Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2")},
		Steps: []spec.Step{
			{Name: "the slices come first", Do: []spec.Action{
				Slice("one", "web", "", 8080, SliceEndpoint{Host: "a1"}), settled, Apply(Service("web", Selecting(""))),
			}, Rows: servedBy("a1")},
			{Name: "the Service goes first", Do: []spec.Action{Delete("Service", "web")}, Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("web", 80), Want: spec.NotServed},
			}},
			{Name: "the slices change meanwhile", Do: []spec.Action{
				DeleteSlice("one"), Slice("two", "web", "", 8080, SliceEndpoint{Host: "a2"}), settled, Apply(Service("web",
					Selecting(""))),
			}, Rows: servedBy("a2")},
			{Name: "the slices go first", Do: []spec.Action{DeleteSlice("two")}, Rows: WantRefused(
				spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80)},
			)},
			{Name: "the Service was there first", Do: []spec.Action{Slice("three", "web", "", 8080, SliceEndpoint{Host: "a1"})},
				Rows: servedBy("a1")},
		},
	}
}

func servedBy(by string) []spec.Row {
	return []spec.Row{{From: "c1", To: spec.ClusterIPOf("web", 80), Times: 3, Servers: []string{by}}}
}

// settled waits until every node has programmed the changes made so far.
var settled = spec.Action{Name: "wait for the nodes", Run: func(ctx context.Context,
	w spec.World) error {
	return w.Settle(ctx)
}}
