// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// sliceMoves returns the scenarios of endpoints that move between slices, Services and nodes.
func sliceMoves() []spec.Scenario {
	return []spec.Scenario{
		movesBetweenSlices(),
		{
			ID: "ep-duplicate-conditions", Needs: []spec.Feature{spec.ClusterIP},
			Given: behindSlices(Service("web", Selecting(""))),
			Steps: []spec.Step{
				{
					Name: "in both slices",
					Do: []spec.Action{Slice("former", "web", "", 8080, SliceEndpoint{Host: "a1", State: Unready}), settled,
						Slice("present", "web", "", 8080, SliceEndpoint{Host: "a1", State: Running})},
					Rows: servedBy("a1"),
				},
				{Name: "in one slice", Do: []spec.Action{DeleteSlice("former")}, Rows: servedBy("a1")},
			},
		},
		sliceOfNobody(),
		sliceRelabelled(),
		{
			ID: "ep-node-name-appears", Needs: []spec.Feature{spec.ClusterIP, spec.ITPLocal},
			Given: behindSlices(Pod("c2", "n2"), Service("web", Selecting(""), ITPLocal())),
			Steps: []spec.Step{
				{Name: "no node", Do: []spec.Action{Slice("web", "web", "", 8080, SliceEndpoint{Host: "a1", NoNodeName: true})},
					Rows: notLocalTo("c1", "c2")},
				{Name: "n1", Do: []spec.Action{Slice("web", "web", "", 8080, SliceEndpoint{Host: "a1"})},
					Rows: append(notLocalTo("c2"), servedBy("a1")...)},
				{Name: "no node again", Do: []spec.Action{
					Slice("web", "web", "", 8080, SliceEndpoint{Host: "a1", NoNodeName: true})}, Rows: notLocalTo("c1", "c2")},
			},
		},
		{
			ID: "ep-no-node-name-hairpin", Needs: []spec.Feature{spec.ClusterIP},
			Given: behindSlices(Service("web", Selecting(""))),
			Steps: []spec.Step{{
				Do: []spec.Action{Slice("web", "web", "", 8080, SliceEndpoint{Host: "a1", NoNodeName: true})},
				Rows: []spec.Row{
					{From: "a1", To: spec.ClusterIPOf("web", 80), Times: 3, Servers: []string{"a1"}, Port: 8080},
				},
			}},
		},
		{
			ID: "ep-slices-of-two-authors", Needs: []spec.Feature{spec.ClusterIP},
			Given: []store.Object{
				Pod("c1", "n1"), Backend("a1", "n1"), Backend("b2", "n2", App("other")), Service("web"),
			},
			Steps: []spec.Step{
				{Name: "both", Do: []spec.Action{Endpoints("by-hand", "web", "", 8080, "b2")},
					Rows: []spec.Row{even("c1", "web", "a1", "b2")}},
				{Name: "the controller's is empty", Do: []spec.Action{Readiness("a1", false)},
					Rows: []spec.Row{only("c1", "web", "b2")}},
				{Name: "the other is gone", Do: []spec.Action{Readiness("a1", true), DeleteSlice("by-hand")},
					Rows: []spec.Row{only("c1", "web", "a1")}},
			},
		},
		sharedByServices(),
		{
			ID: "ep-services-swap-endpoints", Needs: []spec.Feature{spec.ClusterIP},
			Given: behindSlices(Service("one", Selecting("")), Service("two", Selecting(""))),
			Steps: []spec.Step{
				{Name: "first", Do: []spec.Action{behind("a1", "a2")}, Rows: ones("a1", "a2")},
				{Name: "swapped", Do: []spec.Action{behind("a2", "a1")}, Rows: ones("a2", "a1")},
				{Name: "swapped to and fro", Do: []spec.Action{
					behind("a1", "a2"), behind("a2", "a1"), behind("a1", "a2"), behind("a2", "a1"), behind("a1", "a2")},
					Rows: ones("a1", "a2")},
			},
		},
	}
}

func sharedByServices() spec.Scenario {
	return spec.Scenario{
		ID: "ep-shared-by-services", Needs: []spec.Feature{spec.ClusterIP},
		Given: behindSlices(Service("one", Selecting("")), Service("two", Selecting(""))),
		Steps: []spec.Step{
			{
				Name: "behind both",
				Do:   []spec.Action{Endpoints("one", "one", "", 8080, "a2"), Endpoints("two", "two", "", 8080, "a2")},
				Rows: []spec.Row{kept("one", "a2"), only("c1", "one", "a2"), only("c1", "two", "a2")},
			},
			{
				Name: "behind one", Do: []spec.Action{Endpoints("two", "two", "", 8080, "a3")},
				Rows: []spec.Row{kept("one", "a2"), only("c1", "one", "a2"), only("c1", "two", "a3")},
			},
			{Name: "the other is gone", Do: []spec.Action{Delete("Service", "two"), DeleteSlice("two")},
				Rows: []spec.Row{kept("one", "a2"), only("c1", "one", "a2")}},
		},
	}
}

// kept is a TCP connection to a Service that stays open from step to step.
func kept(service, by string) spec.Row {
	return spec.Row{From: "c1", To: spec.ClusterIPOf(service, 80), Conn: "kept", Servers: []string{by}}
}

// notLocalTo wants clients unserved, because their nodes have no endpoint of the Service web.
func notLocalTo(clients ...string) []spec.Row {
	return FromEach(spec.Row{To: spec.ClusterIPOf("web", 80), Want: DropOrReject}, clients...)
}

// behind writes the slices of the Services one and two at once, with one pod each.
func behind(one, two string) spec.Action {
	return NewAction("put "+one+" behind one and "+two+" behind two", func(w spec.World) error {
		return w.Apply(append(SlicesOf(w, "one", "one", "", 8080, SliceEndpoint{Host: one}),
			SlicesOf(w, "two", "two", "", 8080, SliceEndpoint{Host: two})...)...)
	})
}

func ones(one, two string) []spec.Row {
	return []spec.Row{only("c1", "one", one), only("c1", "two", two)}
}

func movesBetweenSlices() spec.Scenario {
	both := []SliceEndpoint{{Host: "a1"}, {Host: "a2"}}
	const flows = 10
	return spec.Scenario{
		ID: "ep-moves-between-slices", Needs: []spec.Feature{spec.ClusterIP},
		Given: []store.Object{Pod("c1", "n1"), Pod("a1", "n1", UDP(8080)), Pod("a2", "n2", UDP(8080)),
			Service("web", Selecting(""), UDPPort(80, 8080))},
		Steps: []spec.Step{
			{Name: "in the first", Do: []spec.Action{ChangedSlice(overUDP, "first", "web", 8080, both...)},
				Rows: udpFlows(flows, "a1", "a2")},
			{Name: "in both", Do: []spec.Action{ChangedSlice(overUDP, "second", "web", 8080, both...)},
				Rows: udpFlows(flows, "a1", "a2")},
			{Name: "in the second", Do: []spec.Action{DeleteSlice("first")}, Rows: append(udpFlows(flows, "a1", "a2"),
				spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Proto: "udp", Servers: []string{"a1", "a2"}, Even: true})},
			{Name: "in neither, and back", Do: []spec.Action{
				DeleteSlice("second"), ChangedSlice(overUDP, "third", "web", 8080, both[1])},
				Rows: []spec.Row{{From: "c1", To: spec.ClusterIPOf("web", 80), Proto: "udp", Times: lifecycleDraws,
					Servers: []string{"a2"}}}},
		},
	}
}

// sliceOfNobody has slices that are called like the Service web: one without a label, one in another namespace, and one
// of another Service.
func sliceOfNobody() spec.Scenario {
	const next = "ep-slice-of-nobody-next"
	return spec.Scenario{
		ID: "ep-slice-of-nobody", Needs: []spec.Feature{spec.ClusterIP},
		Given: behindSlices(Namespace(next, nil), Service("web", Selecting("")), Service("other", Selecting(""))),
		Steps: []spec.Step{{
			Do: []spec.Action{
				ChangedSlice(unlabelled, "web-1", "web", 8080, SliceEndpoint{Host: "a1"}),
				ChangedSlice(func(s *discoveryv1.EndpointSlice) { s.Namespace = next }, "web-2", "web", 8080,
					SliceEndpoint{Host: "a1"}),
				Endpoints("web-3", "other", "", 8080, "a2"),
			},
			Rows: append(WantRefused(spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Times: 3}),
				only("c1", "other", "a2")),
		}},
	}
}

func unlabelled(s *discoveryv1.EndpointSlice) { s.Labels = map[string]string{} }

func sliceRelabelled() spec.Scenario {
	refused := func(service string) spec.Row {
		return WantRefused(spec.Row{From: "c1", To: spec.ClusterIPOf(service, 80), Times: 3})[0]
	}
	return spec.Scenario{
		ID: "ep-slice-relabelled", Needs: []spec.Feature{spec.ClusterIP},
		Given: behindSlices(Service("web", Selecting("")), Service("other", Selecting(""))),
		Steps: []spec.Step{
			{Name: "labelled for web", Do: []spec.Action{Endpoints("s", "web", "", 8080, "a1")},
				Rows: []spec.Row{only("c1", "web", "a1"), refused("other")}},
			{Name: "labelled for other", Do: []spec.Action{Endpoints("s", "other", "", 8080, "a1")},
				Rows: []spec.Row{refused("web"), only("c1", "other", "a1")}},
			{Name: "no label", Do: []spec.Action{ChangedSlice(unlabelled, "s", "", 8080, SliceEndpoint{Host: "a1"})},
				Rows: []spec.Row{refused("web"), refused("other")}},
			{Name: "labelled for web again", Do: []spec.Action{Endpoints("s", "web", "", 8080, "a1")},
				Rows: []spec.Row{only("c1", "web", "a1"), refused("other")}},
		},
	}
}
