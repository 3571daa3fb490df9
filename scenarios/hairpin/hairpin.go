// Package hairpin holds the scenarios of a pod that reaches itself through its own Service.
package hairpin

import (
	"github.com/viplab/viplab/lab/kube"
	. "github.com/viplab/viplab/scenarios/given"
	"github.com/viplab/viplab/suite/spec"
)

// Scenarios are the group's scenarios.
var Scenarios = []spec.Scenario{
	{
		ID: "hairpin-among-many", Group: "hairpin", Priority: spec.P0,
		Source: "TestClusterIPEndpoints 'hairpin to cluster IP'; the endpoint chain's rule for its own source",
		Why:    "A pod that is one of several behind a Service reaches the Service every time, also when the choice falls on itself; the others see its own address.",
		Needs:  []spec.Feature{spec.ClusterIP, spec.Hairpin, spec.SourceAddress},
		Given:  []kube.Object{Backend("a1", "n1"), Backend("b1", "n1"), Backend("a2", "n2"), Service("web")},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "a1", To: spec.ClusterIPOf("web", 80), Times: 90, By: []string{"a1", "b1", "a2"}, Even: true, SeenAs: spec.ItselfUnlessHairpin("n1")},
		}}},
	},
}
