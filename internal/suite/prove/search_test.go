// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/viplab/viplab/internal/suite/prove/faults"
	"github.com/viplab/viplab/suite/spec"
)

// searched returns the options of a search for four faults on one proxier.
func searched() Options {
	o := Options{Proxiers: []string{"mine"}, Scenarios: []spec.Scenario{{ID: "x"}}}
	for _, name := range []string{"found", "hidden", "idle", "policies-forgotten"} {
		o.Faults = append(o.Faults, faults.Fault{Name: name, Scenarios: []string{"x"}})
	}
	o.Faults = append(o.Faults, faults.Fault{Name: "foreign", Proxiers: []string{"other"}, Scenarios: []string{"x"}})
	return o
}

func searcher(control Found, controlCases *int) Searcher {
	return func(_ context.Context, fault, _ string, cases int) (Found, error) {
		switch fault {
		case "found":
			return Found{Case: "random-1-7", Kinds: []string{"hinted Refused"}, Cases: 24, Touched: 3}, nil
		case "hidden":
			return Found{Cases: 99, Touched: 3}, nil
		case "idle": // a failure that the fault cannot have caused
			return Found{Case: "random-1-8", Cases: 48}, nil
		case "":
			*controlCases = cases
			return control, nil
		}
		return Found{}, errors.New("must not be searched for: " + fault)
	}
}

func TestSearchesAreJudged(t *testing.T) {
	cases := 0
	all, err := DoSearch(t.Context(), searched(), searcher(Found{Cases: 24}, &cases), func(Search) {})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]Verdict{"found": Caught, "hidden": Survived, "idle": Survived, "policies-forgotten": Foreign,
		"foreign": Foreign}
	for _, s := range all.Searches {
		if s.Verdict != want[s.Fault] {
			t.Errorf("%s: %s (%s), want %s", s.Fault, s.Verdict, s.Reason, want[s.Fault])
		}
	}
	if cases != 24 {
		t.Errorf("the control plays %d cases, want the 24 of the longest successful search", cases)
	}
	var out bytes.Buffer
	const summary = "1 of 3 faults were found; 2 do not concern"
	if err := all.Write(&out); err != nil || !strings.Contains(out.String(), summary) {
		t.Errorf("%v: %s", err, out.String())
	}
	if code := all.ExitCode(); code != 1 {
		t.Errorf("exit code %d with a fault that was not found, want 1", code)
	}
}

func TestAControlThatFindsSomethingBreaksTheSearch(t *testing.T) {
	o, cases := searched(), 0
	o.Only = regexp.MustCompile("^found$")
	all, err := DoSearch(t.Context(), o, searcher(Found{Case: "random-1-3", Kinds: []string{"hinted Refused"}}, &cases),
		func(Search) {})
	if err != nil || all.Controls[0].Verdict != Broken || all.ExitCode() != 2 {
		t.Errorf("%v: control %+v, exit code %d", err, all.Controls[0], all.ExitCode())
	}
}

func TestAnInterruptedSearchKeepsItsVerdicts(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	all, err := DoSearch(ctx, searched(), func(_ context.Context, fault, _ string, _ int) (Found, error) {
		if fault == "found" {
			return Found{Case: "random-1-7", Cases: 24, Touched: 3}, nil
		}
		interrupt()
		return Found{}, errors.New("killed")
	}, func(Search) {})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := all.Write(&out); err != nil || strings.Contains(out.String(), "killed") {
		t.Errorf("%v: %s", err, out.String())
	}
	judged, of := all.Judged()
	if judged != 1 || of != 3 || all.Searches[0].Verdict != Caught || all.ExitCode() != 2 {
		t.Errorf("%d of %d, exit code %d: %+v", judged, of, all.ExitCode(), all.Searches)
	}
}
