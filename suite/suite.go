// SPDX-License-Identifier: Apache-2.0

// Package suite judges implementations of Service virtual IPs and of NetworkPolicy in an ordinary Go test.
// RunConformance runs scenarios on proxiers and reports each verdict as a subtest. Package spec defines proxiers and
// scenarios, and package scenarios holds the catalogue.
package suite

import (
	"context"
	"strings"
	"testing"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/suite/spec"
)

// Options select the scenarios, the proxiers and the kind of cluster.
type Options = engine.Options

// Event is passed to Options.Listen whenever a scenario starts or ends.
type Event = engine.Event

// Cell is one scenario on one proxier.
type Cell = engine.Cell

// RunConformance runs the scenarios of the options on their proxiers, many concurrently, and reports the verdict of
// each as the subtest "PROXIER/SCENARIO". It returns all results. The caller's TestMain must be sandbox.Main, or the
// test must run as root in namespaces of its own. Options.Focus limits what runs; the flag -run only limits what is
// reported.
func RunConformance(t *testing.T, o Options) []spec.Result {
	t.Helper()
	cells, err := engine.Plan(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	run := engine.NewRun(cells, o)
	go run.Do(t.Context())
	for _, c := range cells {
		t.Run(c.Proxier.Name()+"/"+c.Scenario.ID, func(t *testing.T) { report(t, c) })
	}
	results := run.Results()
	if err := run.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
	for _, r := range results {
		if r.Verdict != spec.Skip {
			return results
		}
	}
	t.Error("no scenario ran: nothing is proved")
	return results
}

func report(t *testing.T, c *engine.Cell) {
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
