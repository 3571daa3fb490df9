// SPDX-License-Identifier: Apache-2.0

package mechanisms

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/observe"
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
	if err := w.Expect(ctx, spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), By: []string{"a1", "a3"},
		Even: true}); err != nil {
		return err
	}
	if err := done(); err != nil {
		return err
	}
	spec.MustDo(w.Store().Delete(store.KindPod, w.Namespace(), "a3"))
	return w.Settle(ctx)
}

// countersBack is how long counters may take to be there again. The legacy back end replaces a table with one whose
// counters are 0, and adds the old ones in a second call: whoever reads between, while somebody else's change goes on,
// sees none.
const countersBack = 20 * time.Second

func keepsCounters(ctx context.Context, w spec.World, family lab.Family) error {
	const connections = 5
	row := spec.Row{From: "c1", To: spec.ClusterIPOf("calm", 80), Family: family, Times: connections, By: []string{"b2"}}
	if err := w.Expect(ctx, row); err != nil {
		return err
	}
	if err := counts(ctx, w, family, "calm", connections); err != nil {
		return err
	}
	return change(ctx, w, func() error {
		if err := counts(ctx, w, family, "calm", connections); err != nil {
			return fmt.Errorf("after a change of another Service: %w", err)
		}
		return nil
	})
}

// counts wants the chain of a Service to have counted as many packets as connections were made.
func counts(ctx context.Context, w spec.World, family lab.Family, service string, connections int) error {
	limit := machine.Limit(countersBack)
	waiting, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%s are over", limit))
	defer cancel()
	chain := svcChain(w, "KUBE-SVC-", service)
	return observe.Await(waiting, nil, func(context.Context) error {
		t, err := save(ctx, w, "n1", family, "nat") // which is not cut short when the waiting is over
		if n := t.matched(chain, "-j"); err == nil && n < connections {
			err = fmt.Errorf("%s of Service %s has counted %d packets of %d connections", chain, service, n, connections)
		}
		return err
	})
}

func keepsHandles(ctx context.Context, w spec.World, family lab.Family) error {
	before, err := chainsAbout(ctx, w, family, "calm")
	if err != nil {
		return err
	}
	if len(before) == 0 {
		return fmt.Errorf("no chain of table kube-proxy is named after the Service calm")
	}
	return change(ctx, w, func() error {
		after, err := chainsAbout(ctx, w, family, "calm")
		if err == nil && !slices.Equal(after, before) {
			err = fmt.Errorf("the chains of a Service that has not changed were\n%s\nand are\n%s",
				strings.Join(before, "\n"), strings.Join(after, "\n"))
		}
		return err
	})
}

// chainsAbout are the chains named after a Service, rule by rule with their handles, which no two rules of a table ever
// share.
func chainsAbout(ctx context.Context, w spec.World, family lab.Family, service string) ([]string, error) {
	ip := map[lab.Family]string{lab.V4: "ip", lab.V6: "ip6"}[family]
	text, err := Shown(ctx, w, "n1", "nft", "-a", "list", "table", ip, "kube-proxy")
	if err != nil {
		return nil, err
	}
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
	return lines, nil
}
