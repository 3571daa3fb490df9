// SPDX-License-Identifier: Apache-2.0

package mechanisms

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

func cleanup() spec.Scenario {
	return spec.Scenario{
		ID: "rr-cleanup", Cluster: &spec.ClusterConfig{Nodes: []string{"n1", "n2"}},
		Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.Cleanup},
		Given: world(),
		Steps: []spec.Step{
			{Name: "before", Rows: fresh},
			{Name: "after the clean-up of n1", Check: func(ctx context.Context, w spec.World) error {
				if err := w.Life("n1").Cleanup(ctx); err != nil {
					return err
				}
				if err := w.Expect(ctx,
					spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Want: spec.NotServed},
					spec.Row{From: "n1", To: spec.ClusterIPOf("web", 80), Want: spec.NotServed},
					spec.Row{From: "client", To: spec.NodePortAt("n1", "web", 80), Want: spec.NotServed},
					spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Proto: "udp", Want: spec.NotServed},
					spec.Row{From: "client", To: spec.NodePortAt("n2", "web", 80), By: backends},
					spec.Row{From: "c1", To: spec.HostAt("a2", 8080), By: []string{"a2"}},
					spec.Row{From: "n1", To: spec.HostAt("a2", 8080), By: []string{"a2"}},
					spec.Row{From: "n1", To: spec.HostAt("b1", 8080), By: []string{"b1"}},
				); err != nil {
					return err
				}
				return nothingLeft(ctx, w, "n1")
			}},
		},
	}
}

// ours are names of what kube-proxy makes, those apart that a kubelet makes as well.
var (
	ours     = regexp.MustCompile(`KUBE-[A-Z0-9-]+|kube-[a-z0-9-]+`)
	kubelets = regexp.MustCompile(`^KUBE-(FIREWALL|KUBELET-CANARY|MARK-DROP|IPTABLES-HINT)$`)
)

// nothingLeft looks for rules, sets and devices that are named as those of kube-proxy.
func nothingLeft(ctx context.Context, w spec.World, node string) error {
	shows := [][]string{{"nft", "list", "ruleset"}, {"ipset", "list", "-n"}, {"ip", "link"}}
	if w.Features()[spec.IPTablesLegacy] {
		for _, f := range w.Lab().Stack().Families() {
			for _, table := range []string{"filter", "nat", "mangle"} {
				shows = append(shows, []string{IPTables(w, f), "-w", "-t", table, "-S"})
			}
		}
	}
	left := map[string]bool{}
	for _, argv := range shows {
		text, err := w.Run(ctx, node, argv...)
		if err != nil {
			return err
		}
		for _, name := range ours.FindAllString(text, -1) {
			left[name] = !kubelets.MatchString(name)
		}
	}
	var names []string
	for name, is := range left {
		if is {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		return fmt.Errorf("%s still holds %s", node, strings.Join(names, ", "))
	}
	return nil
}
