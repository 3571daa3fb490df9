// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/proxiers/none"
	"github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// withOwn returns a scenario with a ClusterConfig.
func withOwn(id string, own spec.ClusterConfig) spec.Scenario {
	s := simple(id)
	s.Cluster = &own
	return s
}

// Scenarios share the default cluster, and another one if their configurations are equal and shared. Each of the others
// has its own cluster. A cluster has a proxier on every node, or on the configured ones.
func TestWhoSharesAClusterWithWhom(t *testing.T) {
	masquerading := spec.ClusterConfig{Proxy: spec.ProxyConfig{MasqueradeAll: true}, Shared: true}
	for _, c := range []struct {
		name      string
		scenarios []spec.Scenario
		proxiers  int64
	}{
		{"default", []spec.Scenario{simple("one-a"), simple("one-b")}, 3},
		{"equal", []spec.Scenario{withOwn("one-a", masquerading), withOwn("one-b", masquerading)}, 3},
		{"not equal", []spec.Scenario{withOwn("one-a", masquerading), withOwn("one-b", spec.ClusterConfig{Shared: true})}, 6},
		{"equal, but alone", []spec.Scenario{withOwn("one-a", spec.ClusterConfig{}), withOwn("one-b", spec.ClusterConfig{})},
			6},
		{"on one node", []spec.Scenario{withOwn("one-a", spec.ClusterConfig{Nodes: []string{"n2"}}), simple("one-b")}, 4},
	} {
		var starts atomic.Int64
		p := bad{Proxier: none.New(), name: "counted", starts: &starts}
		for id, r := range run(t, engine.Options{Proxiers: []spec.Proxier{p}, Scenarios: c.scenarios}) {
			if r.Verdict != spec.Pass {
				t.Errorf("%s: %s: %s (%s), want pass", c.name, id, r.Verdict, r.Reason)
			}
		}
		if n := starts.Load(); n != c.proxiers {
			t.Errorf("%s: %d proxiers were started, want %d", c.name, n, c.proxiers)
		}
	}
}

// The cluster of a Quiet scenario is built when the scenarios of all others have ended.
func TestQuietScenariosRunLast(t *testing.T) {
	var mu sync.Mutex
	var order []string
	noting := func(id string, quiet bool, steps int) spec.Scenario {
		s := withOwn(id, spec.ClusterConfig{Quiet: quiet})
		s.Steps = slices.Repeat(s.Steps, steps)
		s.Steps[steps-1].Check = func(context.Context, spec.World) error {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, id)
			return nil
		}
		return s
	}
	scenarios := []spec.Scenario{noting("quiet-a", true, 1), noting("quiet-b", true, 1), noting("any-other", false, 3)}
	run(t, engine.Options{Proxiers: []spec.Proxier{none.New()}, Scenarios: scenarios})
	if want := []string{"any-other", "quiet-a", "quiet-b"}; !slices.Equal(order, want) {
		t.Errorf("the scenarios ended in the order %v, want %v", order, want)
	}
}

// As many scenarios as Options.Parallel run at once: each of these waits until all of them have begun.
func TestParallel(t *testing.T) {
	const parallel = 30 // more than the default
	var begun sync.WaitGroup
	begun.Add(parallel)
	together := make(chan struct{})
	go func() {
		begun.Wait()
		close(together)
	}()
	var scenarios []spec.Scenario
	for i := range parallel {
		s := simple(fmt.Sprintf("one-%d", i))
		s.Given = s.Given[:1]
		s.Steps = []spec.Step{{Check: func(ctx context.Context, _ spec.World) error {
			begun.Done()
			ctx, cancel := context.WithTimeout(ctx, machine.Limit(time.Minute))
			defer cancel()
			select {
			case <-together:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}}}
		scenarios = append(scenarios, s)
	}
	o := engine.Options{Proxiers: []spec.Proxier{none.New()}, Scenarios: scenarios, Parallel: parallel}
	for id, r := range run(t, o) {
		if r.Verdict != spec.Pass {
			t.Errorf("%s: %s (%s), want pass", id, r.Verdict, r.Reason)
		}
	}
}

// A row on a node without a proxier proves nothing, so it is an error.
func TestANodeWithoutAProxierIsNotJudged(t *testing.T) {
	only := spec.ClusterConfig{Nodes: []string{"n1"}}
	for id, row := range map[string]spec.Row{
		"from-a-pod":      {From: "c2", To: spec.ClusterIPOf("web", 80), Want: spec.NotServed},
		"from-a-node":     {From: "n3", To: spec.ClusterIPOf("web", 80), Want: spec.NotServed},
		"at-its-nodeport": {From: "client", To: spec.NodePortAt("n2", "web", 80), Want: spec.NotServed},
	} {
		s := withOwn(id, only)
		s.Given = append(s.Given, fixture.Pod("c2", "n2"), fixture.Service("web", fixture.NodePort()))
		s.Steps = []spec.Step{{Rows: []spec.Row{row}}}
		r := run(t, engine.Options{Proxiers: []spec.Proxier{none.New()}, Scenarios: []spec.Scenario{s}})[id]
		if r.Verdict != spec.Broken || !strings.Contains(r.Reason, "has no proxier") {
			t.Errorf("%s: %s (%s), want broken", id, r.Verdict, r.Reason)
		}
	}
}

func TestAProxierOfASharedClusterIsNotEnded(t *testing.T) {
	s := lives("kills-of-others", &spec.ClusterConfig{Shared: true}, func(ctx context.Context, _ spec.World,
		n1 spec.Control) error {
		return n1.Kill(ctx)
	})
	r := run(t, engine.Options{Proxiers: []spec.Proxier{none.New()}, Scenarios: []spec.Scenario{s}})[s.ID]
	if r.Verdict != spec.Broken || !strings.Contains(r.Reason, "cluster of its own") {
		t.Errorf("%s (%s), want broken", r.Verdict, r.Reason)
	}
}
