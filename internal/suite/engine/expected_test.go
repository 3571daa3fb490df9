// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/proxiers/none"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/expect"
	"github.com/viplab/viplab/suite/spec"
)

// deviant has a row that does not hold, answered by a2 instead of a1, and one that holds, in each of two steps.
func deviant(id string) spec.Scenario {
	rows := []spec.Row{
		{From: "c1", To: spec.HostAt("a2", 8080), Servers: []string{"a1"}},
		{From: "n1", To: spec.HostAt("a2", 8080), Servers: []string{"a2"}},
	}
	s := simple(id)
	s.Given = []store.Object{Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2")}
	s.Steps = []spec.Step{{Name: "At first", Rows: rows}, {Name: "later", Rows: rows}}
	return s
}

func TestWhatIsExpectedIsKnown(t *testing.T) {
	check := simple("e-check")
	check.Steps = []spec.Step{{Check: func(context.Context, spec.World) error { return errors.New("it leaks") }}}
	notAsked := simple("e-not-asked")
	notAsked.Steps[0].Rows[0].Unless = spec.ClusterIP
	partly := simple("e-partly")
	partly.Steps[0].Rows = append(partly.Steps[0].Rows, notAsked.Steps[0].Rows...)
	entries := map[string]string{
		"e-rows":     `rows: ["*/c1/host"], got: Reply`,
		"e-one-step": `rows: ["at-first/c1/host"]`,
		"e-other":    `rows: ["*/c1/host"], got: Silence`,
		"e-holds":    `rows: ["*"]`,
		"e-nothing":  `rows: ["*/c1/host"]`,
		"e-typo":     `rows: ["*/c1/host", "*/c9/host"], flaky: true`,
		"e-whole":    "",
		"e-check":    "",
		"e-surprise": "",
		"e-flaky":    "flaky: true",
		"e-no-row":   `rows: ["*/c9/host"]`,
	}
	var text strings.Builder
	text.WriteString("proxier: none\nexpect:\n")
	var ids []string
	for id, entry := range entries {
		text.WriteString("- {scenario: " + id + ", issue: https://example.com/1, reason: it is so, " + entry + "}\n")
		ids = append(ids, id)
	}
	file, err := expect.Parse("test.yaml", []byte(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	known, err := file.For(expect.Run{}, ids)
	if err != nil {
		t.Fatal(err)
	}
	results := run(t, engine.Options{
		Proxiers: []spec.Proxier{none.New()}, Stack: lab.IPv4, Expect: map[string]*expect.Known{"none": known},
		Scenarios: []spec.Scenario{
			deviant("e-rows"), deviant("e-one-step"), deviant("e-other"), deviant("e-holds"), simple("e-nothing"),
			deviant("e-typo"), deviant("e-whole"), check, simple("e-surprise"), simple("e-flaky"), simple("e-no-row"),
			notAsked, partly, deviant("e-unknown"),
		},
	})
	for id, want := range map[string]struct {
		verdict spec.Verdict
		reason  string
	}{
		"e-rows":      {spec.Known, ""},
		"e-one-step":  {spec.Fail, "1 of 2 rows do not hold"},
		"e-other":     {spec.Fail, "1 of 2 rows do not hold"},
		"e-holds":     {spec.Fail, "what holds is at-first/n1/host v4, later/n1/host v4"},
		"e-nothing":   {spec.Fail, "no row has a label like */c1/host"},
		"e-typo":      {spec.Fail, "no row has a label like */c9/host, although"},
		"e-whole":     {spec.Known, "answered by a2"},
		"e-check":     {spec.Known, "it leaks"},
		"e-surprise":  {spec.Fail, "the scenario passes, although it is expected to fail: it is so (https://example.com/1)"},
		"e-flaky":     {spec.Pass, ""},
		"e-no-row":    {spec.Fail, "no row has a label like */c9/host"},
		"e-not-asked": {spec.Skip, "none of its rows is asked"},
		"e-partly":    {spec.Pass, ""},
		"e-unknown":   {spec.Fail, "1 of 2 rows do not hold"},
	} {
		r := results[id]
		if r.Verdict != want.verdict || !strings.Contains(r.Reason, want.reason) {
			t.Errorf("%s: %s (%s), want %s with %q", id, r.Verdict, r.Reason, want.verdict, want.reason)
		}
		if named := slices.Equal(r.Known, []string{"it is so (https://example.com/1)"}); named != (want.verdict == spec.Known) {
			t.Errorf("%s: the known deviations are %q", id, r.Known)
		}
	}
	if got := results["e-rows"].Probed; len(got) != 4 || got[2].Row != "later/c1/host" || got[2].Known == "" || got[2].Holds {
		t.Errorf("the rows after a known failure: %+v", got)
	}
	for id, label := range map[string]string{"e-not-asked": "c1/host", "e-partly": "c1/host#2"} {
		if got := results[id].OmittedRows; len(got) != 1 || got[0] != label+" (only without clusterip)" {
			t.Errorf("%s: not asked: %q", id, got)
		}
	}
}
