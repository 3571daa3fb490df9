// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"strings"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// longName is a name of 253 letters, the most that there can be, with dots; those of different ends share all but the
// last.
func longName(end string) string { return strings.Repeat("very-long.", 25) + "x-" + end }

// names are the scenarios of names and labels that are hard on rules.
func names() []spec.Scenario {
	return []spec.Scenario{
		{
			ID:    "np-long-names",
			Needs: enforced,
			Given: four(
				policy(longName("a"), pod("a1"), ingress(allow(pods(pod("b1"))))),
				policy(longName("b"), pod("a1"), ingress(allow(pods(pod("b2"))))),
				policy(longName("c"), pod("b1"), ingress()),
			),
			Steps: []spec.Step{
				step("all", nil, open("a1", "b1", "b2"), shut("a1", "c2"), shut("b1", "a1", "b2")),
				step("one goes", do(Delete("NetworkPolicy", longName("a"))), open("a1", "b2"), shut("a1", "b1", "c2"),
					shut("b1", "a1")),
			},
		},
		{
			ID:    "np-label-values",
			Needs: enforced,
			Given: []store.Object{
				echo("a1", "n1"), echo("b1", "n1"),
				echo("empty", "n2", Labelled("tier", "")), echo("none", "n2"), echo("dotted", "n2", Labelled("tier", "a.b_c-d")),
				echo("like", "n2", Labelled("tier", "axb_c-d")),
				echo("longer", "n2", Labelled("tier", "a.b_c-d.e")), echo("key", "n2", Labelled("example.org/tier", "a.b_c-d")),
				policy("empty", pod("a1"), ingress(allow(pods(labels("tier", ""))))),
				policy("dotted", pod("b1"), ingress(allow(pods(labels("tier", "a.b_c-d"))))),
			},
			Steps: []spec.Step{step("", nil,
				open("a1", "empty"), shut("a1", "none", "dotted", "like", "longer", "key"),
				open("b1", "dotted"), shut("b1", "empty", "none", "like", "longer", "key"),
			)},
		},
		{
			ID:    "np-initializing-pod",
			Needs: enforced,
			Given: four(policy("p", pod("d1"), ingress(allow(pods(pod("b2")))), egress())),
			Steps: []spec.Step{
				step("it initializes", do(Apply(echo("d1", "n1")), settled(), initializes("d1")), shut("d1", "b1", "c2"),
					shut("b1", "d1"), shut("b2", "d1")),
				step("it runs", do(runs("d1")), open("d1", "b2"), shut("d1", "b1", "c2"), shut("b1", "d1")),
			},
		},
	}
}
