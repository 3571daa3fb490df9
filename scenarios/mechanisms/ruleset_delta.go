// SPDX-License-Identifier: Apache-2.0

package mechanisms

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// deltas show that what does not change is not written again. Only a mechanism whose objects are known can be looked
// at.
func deltas() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "rs-delta-minimal", Needs: []spec.Feature{spec.IPTables, spec.ClusterIP},
			Given: bystander(),
			Steps: []spec.Step{{Check: EachFamily(keepsCounters)}},
		},
		{
			ID: "rs-delta-minimal-nft", Needs: []spec.Feature{spec.NFTables, spec.ClusterIP, spec.SessionAffinity},
			Given: bystander(Affinity()),
			Steps: []spec.Step{{Check: EachFamily(keepsHandles)}},
		},
	}
}

// bystander is a cluster with a Service that will change and one that will not.
func bystander(options ...ServiceOption) []store.Object {
	return []store.Object{
		Pod("c1", "n1"), Backend("a1", "n1"), Pod("b2", "n2", App("calm"), TCP(8080)),
		Service("web"), Service("calm", options...),
	}
}

// change adds an endpoint to the Service web, and takes it away for the next family.
func change(ctx context.Context, w spec.World, done func() error) error {
	spec.MustDo(w.Apply(Backend("a3", "n3")))
	spec.TryDo(w.Expect(ctx, spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a1", "a3"},
		Even: true}))
	spec.TryDo(done())
	spec.MustDo(w.Store().Delete(store.KindPod, w.Namespace(), "a3"))
	return w.Settle(ctx)
}

func keepsCounters(ctx context.Context, w spec.World, family lab.Family) error {
	const connections = 5
	row := spec.Row{From: "c1", To: spec.ClusterIPOf("calm", 80), Family: family, Times: connections,
		Servers: []string{"b2"}}
	spec.TryDo(w.Expect(ctx, row))
	spec.TryDo(counts(ctx, w, family, "calm", connections))
	return change(ctx, w, func() error {
		if err := counts(ctx, w, family, "calm", connections); err != nil {
			return fmt.Errorf("after a change of another Service: %w", err)
		}
		return nil
	})
}

// counts wants the chain of a Service to have counted as many packets as connections were made. It retries: the legacy
// back end replaces a table with one whose counters are 0 and adds the old ones in a second call; a read between the
// two, during a change of another scenario, sees none.
func counts(ctx context.Context, w spec.World, family lab.Family, service string, connections int) error {
	chain := svcChain(w, "KUBE-SVC-", service)
	return Eventually(ctx, func(context.Context) error { // the end of its context would cut a read short
		if n := save(ctx, w, "n1", family, "nat").matched(chain, "-j"); n < connections {
			return fmt.Errorf("%s of Service %s has counted %d packets of %d connections", chain, service, n,
				connections)
		}
		return nil
	})
}

func keepsHandles(ctx context.Context, w spec.World, family lab.Family) error {
	before := chainsAbout(ctx, w, family, "calm")
	if len(before) == 0 {
		return fmt.Errorf("no chain of table kube-proxy is named after the Service calm")
	}
	return change(ctx, w, func() error {
		if after := chainsAbout(ctx, w, family, "calm"); !slices.Equal(after, before) {
			return fmt.Errorf("the chains of a Service that has not changed were\n%s\nand are\n%s",
				strings.Join(before, "\n"), strings.Join(after, "\n"))
		}
		return nil
	})
}

// chainsAbout are the chains named after a Service, rule by rule with their handles, which no two rules of a table ever
// share.
func chainsAbout(ctx context.Context, w spec.World, family lab.Family, service string) []string {
	ip := OfFamily(family, "ip", "ip6")
	text := OutputOf(ctx, w, "n1", "nft", "-a", "list", "table", ip, "kube-proxy")
	var lines []string
	inside := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "chain "):
			inside = strings.Contains(line, w.Namespace()+"/"+service+"/")
		case line == "}":
			inside = false
		case inside:
			lines = append(lines, line)
		}
	}
	return lines
}
