// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// headless returns the scenarios of Services without a ClusterIP, and of names. What a name resolves to is the DNS's
// responsibility, not the proxier's. That a pod gets an answer at all is the proxier's, since the DNS is a Service too.
func headless() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "headless-not-proxied", Needs: []spec.Feature{spec.ClusterIP},
			Given: []store.Object{
				Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2"), Service("quiet", Headless(), Selecting("web")),
				Service("web"),
			},
			Steps: []spec.Step{{
				Rows: []spec.Row{
					{From: "c1", To: spec.HostAt("a1", 8080), Servers: []string{"a1"}, SeenAs: spec.ClientAddr()},
					{From: "c1", To: spec.HostAt("a2", 8080), Servers: []string{"a2"}, SeenAs: spec.ClientAddr()},
					{From: "c1", To: spec.HostAt("a1", 80), Want: spec.Refused},
					{From: "c1", To: spec.HostAt("a2", 80), Want: spec.Refused},
					{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a1", "a2"}},
				},
				Check: noTraceOf("quiet"),
			}},
		},
		{
			ID: "headless-slice-label", Needs: []spec.Feature{spec.ClusterIP},
			Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2"), Service("web", Selecting(""))},
			Steps: []spec.Step{
				{
					Name: "with the label from the beginning",
					Do:   []spec.Action{Endpoints("web", "web", "", 8080, "a2"), labelled(true)},
					Rows: WantRefused(spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80)}),
				},
				{
					Name: "without it", Do: []spec.Action{labelled(false)},
					Rows: []spec.Row{{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a2"}}},
				},
				{
					Name: "with it again", Do: []spec.Action{labelled(true)},
					Rows: WantRefused(spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80)}),
				},
			},
		},
		vip(), serviceNames(), records(),
	}
}

// labelled sets or removes the label of headless Services on the slices of the Service web.
func labelled(yes bool) spec.Action {
	return NewAction(fmt.Sprintf("label of headless Services: %t", yes), func(w spec.World) error {
		for _, f := range w.Lab().Stack().Families() {
			name := fmt.Sprintf("web-%s", f)
			spec.MustDo(store.Update(w.Store(), w.Namespace(), name, func(s *discoveryv1.EndpointSlice) {
				if delete(s.Labels, corev1.IsHeadlessService); yes {
					s.Labels[corev1.IsHeadlessService] = ""
				}
			}))
		}
		return nil
	})
}

// noTraceOf looks for a Service's name among the rules of n1, where proxiers write it into comments and names.
func noTraceOf(service string) Check {
	return func(ctx context.Context, w spec.World) error {
		rules := spec.Must(w.Run(ctx, "n1", "nft", "list", "ruleset"))
		for _, save := range []string{"iptables-legacy-save", "ip6tables-legacy-save"} {
			text, _ := w.Run(ctx, "n1", save) // the programs may be missing
			rules += text
		}
		for line := range strings.Lines(rules) {
			if strings.Contains(line, w.Namespace()+"/"+service) {
				return fmt.Errorf("n1 has a rule for it: %s", strings.TrimSpace(line))
			}
		}
		return nil
	}
}
