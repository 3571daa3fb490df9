// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/proxiers/none"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// only declares some features.
type only struct {
	spec.Proxier
	features spec.FeatureSet
}

func (o only) Features() spec.FeatureSet { return o.features }

// enforcer is an enforcer that delegates to p.
func enforcer(p spec.Proxier) spec.Proxier { return only{p, spec.Features(spec.NetworkPolicy)} }

// plain is a proxier without network policies.
func plain() spec.Proxier { return only{none.New(), spec.Features(spec.Topology)} }

func TestAnEnforcerIsPlacedBesideTheProxier(t *testing.T) {
	b := &book{}
	s := lives("two-on-a-node", &spec.ClusterConfig{}, func(ctx context.Context, w spec.World, n1 spec.Control) error {
		for _, f := range []spec.Feature{spec.Topology, spec.NetworkPolicy} {
			if !w.Features()[f] {
				return fmt.Errorf("the world lacks %s", f)
			}
		}
		guard := w.EnforcerControl("n1")
		return errors.Join(guard.Kill(ctx), guard.Start(ctx), w.Settle(ctx), n1.Kill(ctx))
	})
	s.Needs = []spec.Feature{spec.Topology, spec.NetworkPolicy}
	r := run(t, engine.Options{
		Proxiers:  []spec.Proxier{only{diary{none.New(), "proxier", b}, spec.Features(spec.Topology)}},
		Enforcer:  enforcer(diary{none.New(), "enforcer", b}),
		Scenarios: []spec.Scenario{s},
	})[s.ID]
	if r.Verdict != spec.Pass {
		t.Fatalf("%s: %s", r.Verdict, r.Reason)
	}
	var ofEnforcer []string
	for _, line := range b.lines {
		who, what, _ := strings.Cut(line, " ")
		if who == "enforcer" && (len(ofEnforcer) == 0 || ofEnforcer[len(ofEnforcer)-1] != what) {
			ofEnforcer = append(ofEnforcer, what)
		}
	}
	// The enforcer starts after the proxier has converged, so that its rules precede the proxier's.
	if got := strings.Join(b.lines[:3], ", "); got != "proxier start, proxier apply, enforcer start" {
		t.Errorf("began with %s", got)
	}
	if got := strings.Join(ofEnforcer, " "); got != "start apply kill start apply kill" {
		t.Errorf("the life of the enforcer: %s", got)
	}
}

// World.ProxierControl and World.EnforcerControl control the same program if it is both proxier and enforcer.
func TestAProxierThatEnforces(t *testing.T) {
	b := &book{}
	s := lives("both-in-one", &spec.ClusterConfig{}, func(ctx context.Context, w spec.World,
		_ spec.Control) error {
		return w.EnforcerControl("n1").Kill(ctx)
	})
	s.Needs = []spec.Feature{spec.NetworkPolicy}
	r := run(t, engine.Options{Proxiers: []spec.Proxier{diary{none.New(), "both", b}},
		Scenarios: []spec.Scenario{s}})[s.ID]
	if got := strings.Join(b.lines, ", "); r.Verdict != spec.Pass || got != "both start, both apply, both kill" {
		t.Errorf("%s (%s): %s", r.Verdict, r.Reason, got)
	}
}

func TestScenariosOfPoliciesNeedAnEnforcer(t *testing.T) {
	s := simple("needs-policies")
	s.Needs = []spec.Feature{spec.NetworkPolicy}
	var starts atomic.Int64
	unusable := bad{Proxier: none.New(), name: "absent", starts: &starts,
		usable: &spec.UnusableError{Missing: "ipset", Cure: "apt-get install ipset"}}
	routedOnly := bad{Proxier: none.New(), name: "picky",
		start: func() error { return &spec.UnusableError{Missing: "routed pods", Cure: "--pods routed"} }}
	for _, c := range []struct {
		enforcer spec.Proxier
		verdict  spec.Verdict
		want     string
	}{
		{nil, spec.Skip, "no enforcer of network policies (--enforcer)"},
		{enforcer(unusable), spec.Skip, "absent cannot run here: needs ipset"},
		{enforcer(routedOnly), spec.Skip, "start enforcer picky: needs routed pods"},
		{enforcer(none.New()), spec.Pass, ""},
	} {
		r := run(t, engine.Options{Proxiers: []spec.Proxier{plain()}, Enforcer: c.enforcer,
			Scenarios: []spec.Scenario{s}})[s.ID]
		if r.Verdict != c.verdict || !strings.Contains(r.Reason, c.want) {
			t.Errorf("%s (%s), want %s with %q", r.Verdict, r.Reason, c.verdict, c.want)
		}
	}
	_, err := engine.Plan(t.Context(), engine.Options{Proxiers: []spec.Proxier{plain()}, Enforcer: plain(),
		Scenarios: []spec.Scenario{s}})
	if err == nil || !strings.Contains(err.Error(), "does not declare networkpolicy") {
		t.Errorf("an enforcer that enforces nothing: %v", err)
	}
}

func TestAnEnforcerThatFails(t *testing.T) {
	out := t.TempDir()
	broken := bad{Proxier: none.New(), name: "broken", apply: func(_ context.Context,
		n int64) error {
		return errors.New("line 3: bad set")
	}}
	r := run(t, engine.Options{
		Proxiers: []spec.Proxier{plain()}, Enforcer: enforcer(broken), Scenarios: []spec.Scenario{simple("sound-one")},
		Out: out,
	})["sound-one"]
	for _, want := range []string{"the enforcer cannot apply the cluster's state: line 3: bad set", "--enforcer broken"} {
		if r.Verdict != spec.Fail || !strings.Contains(r.Reason, want) {
			t.Errorf("%s (%s), want a failure with %q", r.Verdict, r.Reason, want)
		}
	}
	for _, file := range []string{"n1-rules.txt", "n1-policies.txt", "proxier.log", "enforcer.log"} {
		if _, err := os.Stat(filepath.Join(out, "sound-one", "none", file)); err != nil {
			t.Error(err)
		}
	}
}

// A scenario may have further namespaces, whose pods it names as "namespace/name". They are deleted with the scenario.
func TestFurtherNamespaces(t *testing.T) {
	s := simple("two-namespaces")
	far := Backend("b2", "n2", In("two-namespaces-far"))
	s.Given = append(s.Given, Namespace("two-namespaces-far", nil), far)
	s.Steps = []spec.Step{{Rows: []spec.Row{
		{From: "c1", To: spec.HostAt("two-namespaces-far/b2", 8080), Servers: []string{"two-namespaces-far/b2"}},
		{From: "two-namespaces-far/b2", To: spec.HostAt("a2", 8080), Servers: []string{"a2"}},
	}}}
	ended := make(chan struct{})
	after := simple("looks-after-it")
	after.Steps = append(after.Steps, spec.Step{Check: func(ctx context.Context, w spec.World) error {
		select {
		case <-ended:
		case <-ctx.Done():
			return ctx.Err()
		}
		for _, ns := range w.Store().Snapshot().Namespaces {
			if ns.Name == "two-namespaces-far" {
				return errors.New("it is still there")
			}
		}
		return nil
	}})
	results := run(t, engine.Options{
		Proxiers: []spec.Proxier{none.New()}, Scenarios: []spec.Scenario{s, after},
		Listen: func(e engine.Event) {
			if e.Result != nil && e.Cell.Scenario.ID == s.ID {
				close(ended)
			}
		},
	})
	for id, r := range results {
		if r.Verdict != spec.Pass {
			t.Errorf("%s: %s (%s)", id, r.Verdict, r.Reason)
		}
	}
}
