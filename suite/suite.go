// SPDX-License-Identifier: Apache-2.0

// Package suite judges implementations of Service virtual IPs and of NetworkPolicy in an ordinary Go test:
//
//	func TestMain(m *testing.M) { labtest.Main(m) }
//
//	func TestConformance(t *testing.T) {
//		suite.RunConformance(t, suite.Options{Proxiers: []spec.Proxier{myproxy.New()}, Version: myproxy.Version})
//	}
//
// Package spec is the vocabulary: it defines proxiers and scenarios. Package scenarios holds the catalogue.
package suite

import (
	"context"
	"strings"
	"testing"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/lab/labtest"
	"github.com/viplab/viplab/suite/spec"
)

// RunConformance judges the proxiers and reports the verdict of each scenario as a subtest, whose name is the
// scenario's id: "TestConformance/clusterip-spread". With several proxiers it is "TestConformance/PROXIER/ID". The
// flags -run and -skip choose what runs: -run 'TestConformance/^clusterip-' runs these scenarios alone. All that are
// chosen run concurrently, as far as they can share clusters.
//
// A scenario whose needs the proxier does not declare is skipped, with the reason, and so is one of Options.Skip. One
// that fails as Options.Expect foresees passes, and its log says so. If no scenario runs at all, the test fails:
// nothing would be proved.
//
// RunConformance returns at once. The scenarios run after the caller has returned, as parallel subtests do, and then
// report.json, junit.xml and report.html are written to Options.Out. So call it last, and do what belongs to the end in
// t.Cleanup before.
//
// It needs what package labtest needs: a TestMain that calls labtest.Main, or root.
func RunConformance(t *testing.T, o Options) {
	t.Helper()
	labtest.Require(t)
	if o.Out == "" {
		o.Out = t.ArtifactDir()
	}
	options, err := o.engine(t.Name())
	if err != nil {
		t.Fatal(err)
	}
	cells, err := plan(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	var chosen []*engine.Cell
	for _, c := range cells {
		t.Run(o.subtest(c.Scenario.ID, c.Proxier.Name()), func(t *testing.T) {
			// Of the subtests, those that -run and -skip choose get here. Parallel subtests wait until their parent returns.
			chosen = append(chosen, c)
			t.Parallel()
			judge(t, c)
		})
	}
	if len(chosen) == 0 {
		t.Skip("-run and -skip choose none of the scenarios")
	}
	r := newRunning(options, chosen, o.Version)
	go r.run.Do(t.Context())
	t.Cleanup(func() { r.finish(context.WithoutCancel(t.Context()), t) })
}

// judge waits for a cell and reports its verdict.
func judge(t *testing.T, c *engine.Cell) {
	r, err := c.Wait(t.Context())
	switch {
	case err != nil:
		t.Fatal(err)
	case r.Verdict == spec.Skip:
		t.Skip(r.Reason)
	case r.Verdict == spec.Known:
		t.Logf("known: %s", strings.Join(r.Known, "; "))
	case r.Verdict == spec.Fail:
		t.Fatalf("%s\n%s", c.Scenario.Why, r.Reason)
	case r.Verdict == spec.Broken:
		t.Fatalf("broken (the harness, not the proxier): %s", r.Reason)
	case r.Reason != "":
		t.Log(r.Reason)
	}
}
