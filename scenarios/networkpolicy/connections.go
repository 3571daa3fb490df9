// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"context"

	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// connections are the scenarios of what goes on when policies change, and of replies.
func connections() []spec.Scenario {
	return []spec.Scenario{
		{
			ID:    "np-replies-pass",
			Needs: enforced,
			Given: four(policy("mute", pod("a1"), egress()), policy("deaf", pod("c2"), ingress())),
			Steps: []spec.Step{step("", nil, open("a1", "b1", "b2", "c2"), open("b1", "c2"), shut("b2", "a1"),
				shut("c2", "b1", "b2"))},
		},
		{
			ID:    "np-neighbours-judged-twice",
			Needs: enforced,
			Given: four(policy("out", pod("b1"), egress(allow(pods(labels())))), policy("none", pod("a1"), ingress()),
				policy("none-there", pod("c2"), ingress())),
			Steps: []spec.Step{step("", nil, shut("a1", "b1"), shut("c2", "b1"), open("b2", "b1"), open("b1", "a1", "b2"))},
		},
		{
			ID:    "np-pinhole-one-way",
			Needs: enforced,
			Given: four(policy("deny", labels(), ingress(), egress()),
				policy("out", pod("a1"), egress(allow(pods(pod("b2"))))), policy("in", pod("b2"), ingress(allow(pods(pod("a1")))))),
			Steps: []spec.Step{step("", nil, open("b2", "a1"), shut("a1", "b2"), shut("b2", "b1", "c2"), shut("c2", "a1"))},
		},
		{
			ID:    "np-denied-flow-opens",
			Needs: enforced,
			Given: four(policy("p", pod("a1"), ingress())),
			Steps: []spec.Step{
				{Name: "denied", Rows: []spec.Row{{From: "c2", To: spec.HostAt("a1", 8080), Proto: "udp", Conn: "flow", Times: 3,
					Want: denied}}},
				{
					Name: "allowed", Do: do(Apply(policy("p", pod("a1"), ingress(allow(pods(pod("c2"))))))),
					Rows: []spec.Row{{From: "c2", To: spec.HostAt("a1", 8080), Proto: "udp", Conn: "flow", Times: 3,
						By: []string{"a1"}}},
				},
			},
		},
		{
			ID:    "np-connection-outlasts-updates",
			Needs: enforced,
			Given: four(policy("p", pod("a1"), ingress(allow(pods(pod("b2")))))),
			Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
				rows := []spec.Row{
					{From: "b2", To: spec.HostAt("a1", 8080), Conn: "long", By: []string{"a1"}},
					{From: "b2", To: spec.HostAt("a1", 8080), Proto: "udp", Conn: "flow", By: []string{"a1"}},
					{From: "b2", To: spec.HostAt("a1", 8080), By: []string{"a1"}},
					{From: "c2", To: spec.HostAt("a1", 8080), Want: denied},
				}
				comeAndGo := do(Apply(policy("other", pod("b1"), ingress())), Delete("NetworkPolicy", "other"))
				return w.During(ctx, rows, func(ctx context.Context, t spec.Traffic) error {
					for range 20 {
						if err := eachSettled(ctx, w, t, comeAndGo); err != nil {
							return err
						}
					}
					return nil
				})
			}}},
		},
	}
}
