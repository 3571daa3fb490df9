// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/proxiers/none"
	"github.com/viplab/viplab/suite/spec"
)

// modest is a proxier without features.
type modest struct{ bad }

func (modest) Features() spec.FeatureSet { return spec.Features() }

func TestSkipsAreDecidedBeforeAnythingIsBuilt(t *testing.T) {
	var starts atomic.Int64
	s := simple("needs-topology")
	s.Needs = []spec.Feature{spec.Topology}
	unusable := bad{Proxier: none.New(), name: "unusable", starts: &starts,
		usable: &spec.UnusableError{Missing: "the program xyz", Cure: "apt-get install xyz"}}
	untold := bad{Proxier: none.New(), name: "untold", starts: &starts, usable: errors.New("permission denied")}
	for _, c := range []struct {
		proxier spec.Proxier
		verdict spec.Verdict
		want    string
	}{
		{modest{bad{Proxier: none.New(), name: "modest", starts: &starts}}, spec.Skip, "not offered: modest lacks topology"},
		{unusable, spec.Skip, "apt-get install xyz"},
		{untold, spec.Broken, "cannot tell whether untold can run here: permission denied"},
	} {
		r := run(t, engine.Options{Proxiers: []spec.Proxier{c.proxier}, Scenarios: []spec.Scenario{s}})["needs-topology"]
		if r.Verdict != c.verdict || !strings.Contains(r.Reason, c.want) {
			t.Errorf("%s: %s (%s), want %s with %q", c.proxier.Name(), r.Verdict, r.Reason, c.verdict, c.want)
		}
	}
	if n := starts.Load(); n != 0 {
		t.Errorf("a skipped proxier was started %d times", n)
	}
}

func TestAScenarioIsSkippedWhereItsFamiliesAreNot(t *testing.T) {
	s := simple("about-both")
	s.Families = []lab.Family{lab.V4, lab.V6}
	for stack, want := range map[lab.Stack]spec.Verdict{lab.IPv4: spec.Skip, lab.IPv6: spec.Skip, lab.Dual: spec.Pass} {
		r := run(t, engine.Options{Proxiers: []spec.Proxier{none.New()}, Scenarios: []spec.Scenario{s},
			Stack: stack})["about-both"]
		if r.Verdict != want {
			t.Errorf("stack %s: %s (%s), want %s", stack, r.Verdict, r.Reason, want)
		}
	}
}

// Some proxiers do not support all of an administrator's settings. Scenarios that need it are skipped, the others run.
func TestAConfigurationThatAProxierCannotTakeIsASkip(t *testing.T) {
	own := simple("wants-masquerade-all")
	own.Cluster = &spec.ClusterConfig{Proxy: spec.ProxyConfig{MasqueradeAll: true}}
	p := unconfigurable{bad{Proxier: none.New(), name: "unconfigurable"}}
	results := run(t, engine.Options{Proxiers: []spec.Proxier{p}, Scenarios: []spec.Scenario{own, simple("sound-one")}})
	if r := results[own.ID]; r.Verdict != spec.Skip || !strings.Contains(r.Reason, "a flag for it") {
		t.Errorf("%s: %s (%s), want skip", own.ID, r.Verdict, r.Reason)
	}
	if r := results["sound-one"]; r.Verdict != spec.Pass {
		t.Errorf("the other scenario: %s (%s), want pass", r.Verdict, r.Reason)
	}
}

// unconfigurable is a proxier that supports no configuration.
type unconfigurable struct{ bad }

func (u unconfigurable) Start(ctx context.Context, node spec.Node) (spec.Instance, error) {
	if node.Config.MasqueradeAll {
		return nil, &spec.UnusableError{Missing: "a flag for it", Cure: "ask its authors"}
	}
	return u.bad.Start(ctx, node)
}

func TestTrySkippedReportsAnUndeclaredFeature(t *testing.T) {
	s := simple("needs-topology")
	s.Needs = []spec.Feature{spec.Topology}
	r := run(t, engine.Options{
		Proxiers: []spec.Proxier{modest{bad{Proxier: none.New(), name: "modest"}}}, Scenarios: []spec.Scenario{s},
		TrySkipped: true,
	})["needs-topology"]
	if r.Verdict != spec.Fail || !strings.Contains(r.Reason, "passes, but does not declare topology") {
		t.Errorf("%s (%s)", r.Verdict, r.Reason)
	}
}

func TestPlansThatWouldProveNothingAreErrors(t *testing.T) {
	for want, o := range map[string]engine.Options{
		"no scenario matches": {Proxiers: []spec.Proxier{none.New()}, Scenarios: allScenarios(t),
			Focus: regexp.MustCompile("^nothing$")},
		`proxier "../x": a name`: {Proxiers: []spec.Proxier{bad{Proxier: none.New(), name: "../x"}},
			Scenarios: allScenarios(t)},
		"a feature of your own has a name such as example.org/dsr": {Scenarios: allScenarios(t),
			Proxiers: []spec.Proxier{declares{none.New(), "dsr"}}},
		"proxier panics: Features: panic: no such table": {Scenarios: allScenarios(t),
			Proxiers: []spec.Proxier{panics{bad{Proxier: none.New(), name: "panics"}}}},
		`proxier "A_b.c": a name`: {Proxiers: []spec.Proxier{bad{Proxier: none.New(), name: "A_b.c"}},
			Scenarios: allScenarios(t)},
		"named twice":   {Proxiers: []spec.Proxier{none.New(), none.New()}, Scenarios: allScenarios(t)},
		"written twice": {Proxiers: []spec.Proxier{none.New()}, Scenarios: append(allScenarios(t), allScenarios(t)...)},
	} {
		if _, err := engine.Plan(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

func TestShardsCoverEverythingOnce(t *testing.T) {
	seen := map[string]int{}
	for shard := 1; shard <= 3; shard++ {
		cells, err := engine.Plan(t.Context(), engine.Options{
			Proxiers: []spec.Proxier{none.New()}, Scenarios: allScenarios(t), Shard: shard, Shards: 3,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cells {
			seen[c.Scenario.ID]++
		}
	}
	for _, s := range allScenarios(t) {
		if seen[s.ID] != 1 {
			t.Errorf("%s is in %d of 3 shards", s.ID, seen[s.ID])
		}
	}
}

// declares is a proxier with one feature.
type declares struct {
	spec.Proxier
	feature spec.Feature
}

func (d declares) Features() spec.FeatureSet { return spec.Features(d.feature) }

// panics is a proxier that cannot say what it offers.
type panics struct{ bad }

func (panics) Features() spec.FeatureSet { panic("no such table") }

// Scenarios and proxiers of other modules have features of their own.
func TestAFeatureOfOnesOwn(t *testing.T) {
	s := simple("needs-dsr")
	s.Needs = []spec.Feature{"example.org/dsr"}
	for feature, want := range map[spec.Feature]spec.Verdict{"example.org/dsr": spec.Pass, spec.NodePort: spec.Skip} {
		r := run(t, engine.Options{
			Scenarios: []spec.Scenario{s}, Proxiers: []spec.Proxier{declares{none.New(), feature}},
		})[s.ID]
		if r.Verdict != want || want == spec.Skip && r.Cause != spec.NotApplicable {
			t.Errorf("a proxier with %s: %s, %s; want %s", feature, r.Verdict, r.Cause, want)
		}
	}
}

func TestAScenarioIsSkippedForTheReasonGiven(t *testing.T) {
	results := run(t, engine.Options{
		Proxiers: []spec.Proxier{none.New()}, Scenarios: []spec.Scenario{simple("sound-one"), simple("sound-two")},
		Skip: func(s spec.Scenario) string { return map[string]string{"sound-two": "fixed in 1.2"}[s.ID] },
	})
	if one, two := results["sound-one"], results["sound-two"]; one.Verdict != spec.Pass || two.Verdict != spec.Skip ||
		two.Reason != "fixed in 1.2" || two.Cause != spec.NotRun {
		t.Errorf("%+v\n%+v", one, two)
	}
}
