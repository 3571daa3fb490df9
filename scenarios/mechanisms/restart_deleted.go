// SPDX-License-Identifier: Apache-2.0

package mechanisms

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/traffic"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// healingLimit is how long a proxier that heals by itself may take: the sync period of kube-proxy, 30 s, and what a
// sync takes.
const healingLimit = 45 * time.Second

func deletedExternally() spec.Scenario {
	return spec.Scenario{
		ID: "rr-rules-deleted-externally", Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
		Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
		Given: world(),
		Steps: []spec.Step{
			{Name: "before", Rows: fresh},
			{Name: "somebody flushes the firewall of n1", Check: func(ctx context.Context, w spec.World) error {
				if err := flushFirewall(ctx, w, "n1"); err != nil {
					return err
				}
				if !w.Features()[spec.SelfHealing] {
					return nil
				}
				return healed(ctx, w)
			}},
			{Name: "a Service comes", Do: []spec.Action{Apply(Service("new", Selecting("web")))}, Rows: append([]spec.Row{
				{From: "c1", To: spec.ClusterIPOf("new", 80), By: backends},
				// What comes from elsewhere to a pod elsewhere has to be masqueraded, which the first one drawn may not show.
				{From: "n1", To: spec.ClusterIPOf("web", 80), By: backends, Times: 20},
				{From: "client", To: spec.NodePortAt("n1", "web", 80), By: backends, Times: 20},
			}, fresh...)},
		},
	}
}

// flushFirewall deletes every table of a node but the lab's own, as the restart of a firewall daemon does.
func flushFirewall(ctx context.Context, w spec.World, node string) error {
	tables, err := w.Run(ctx, node, "nft", "list", "tables")
	if err != nil {
		return err
	}
	var script strings.Builder
	for table := range strings.Lines(tables) {
		if !strings.HasSuffix(strings.TrimSpace(table), " viplab") {
			script.WriteString("delete " + table)
		}
	}
	if _, err := w.Run(ctx, node, "nft", script.String()); err != nil {
		return err
	}
	if !w.Features()[spec.IPTablesLegacy] {
		return nil
	}
	for _, f := range w.Lab().Stack().Families() {
		for _, table := range []string{"filter", "nat", "mangle"} {
			for _, what := range []string{"-F", "-X"} {
				if _, err := w.Run(ctx, node, IPTables(w, f), "-w", "-t", table, what); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// healed returns when new connections work in every family without any change of the cluster.
func healed(ctx context.Context, w spec.World) error {
	limit := machine.Limit(healingLimit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%s are over", limit))
	defer cancel()
	return observe.Await(ctx, nil, func(ctx context.Context) error {
		for _, row := range fresh {
			for _, f := range w.Lab().Stack().Families() {
				conn, answer, err := w.Probe(ctx, row.From, row.To, f, row.Protocol())
				if err != nil {
					return err
				}
				if answer.Outcome != traffic.Reply {
					return fmt.Errorf("%s -> %s %s: %s", row.From, row.To, f, answer)
				}
				if err := conn.Close(); err != nil {
					return &spec.HarnessError{Err: err}
				}
			}
		}
		return nil
	})
}
