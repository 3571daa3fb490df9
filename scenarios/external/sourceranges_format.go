// SPDX-License-Identifier: Apache-2.0

package external

import (
	"slices"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// anyAndFormat has a Service for each way to write ranges.
func anyAndFormat() spec.Scenario {
	return spec.Scenario{
		ID:    "sr-any-and-format",
		Needs: []spec.Feature{spec.LoadBalancer, spec.SourceRanges},
		Given: []store.Object{
			Backend("a2", "n2"),
			Service("everybody", LoadBalancer(), Selecting("web"), from("198.18.0.0/15", "0.0.0.0/0", "2001:db8:ffff::/48",
				"::/0")),
			Service("blanks", LoadBalancer(), Selecting("web"), from(" "+client4+" ", " "+client6)),
			Service("only4", LoadBalancer(), Selecting("web"), from("198.18.0.0/15")),
			Service("only6", LoadBalancer(), Selecting("web"), from("2001:db8:ffff::/48")),
		},
		Steps: []spec.Step{{
			Do: slices.Concat(
				exposed("everybody", "203.0.113.46", "2001:db8:113::46"), exposed("blanks", "203.0.113.47", "2001:db8:113::47"),
				exposed("only4", "203.0.113.48", "2001:db8:113::48"), exposed("only6", "203.0.113.51", "2001:db8:113::51"),
			),
			Rows: []spec.Row{
				{From: "client", To: spec.IngressOf("everybody", 80), By: []string{"a2"}},
				{From: "client", To: spec.IngressOf("blanks", 80), By: []string{"a2"}},
				{From: "client", As: otherAddress, To: spec.IngressOf("blanks", 80), Want: spec.Silence},
				{From: "client", To: spec.IngressOf("only4", 80), Family: lab.V4, Want: spec.Silence},
				{From: "client", To: spec.IngressOf("only4", 80), Family: lab.V6, By: []string{"a2"}},
				{From: "client", To: spec.IngressOf("only6", 80), Family: lab.V6, Want: spec.Silence},
				{From: "client", To: spec.IngressOf("only6", 80), Family: lab.V4, By: []string{"a2"}},
			},
		}},
	}
}
