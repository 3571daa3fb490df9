// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/viplab/viplab/internal/suite/prove/faults"
	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/suite/spec"
)

// verdicts are by fault, then scenario. What is not there passes.
type verdicts map[string]map[string]spec.Verdict

// world runs jobs out of a table.
type world struct {
	verdicts           verdicts
	untouched, refused bool
	err                error
}

func (w world) run(_ context.Context, j Job) (out Outcome, err error) {
	for _, r := range j.Scenarios {
		v, ok := w.verdicts[j.Fault][r]
		if !ok {
			v = spec.Pass
		}
		out.Results = append(out.Results, report.Result{Scenario: r, Proxier: j.Proxier, Verdict: v, Reason: "because"})
	}
	if j.Fault == "" {
		return out, nil
	}
	if !w.untouched {
		out.Touched = 1
	}
	if w.refused {
		out.Refused = []string{"no such chain\nand more"}
	}
	return out, w.err
}

func scenariosNamed(ids ...string) (out []spec.Scenario) {
	for _, id := range ids {
		out = append(out, spec.Scenario{ID: id})
	}
	return out
}

// twoFaults are one for two scenarios on all proxiers, and one for the second scenario on the proxier other.
func twoFaults() []faults.Fault {
	return []faults.Fault{
		{Name: "first", Scenarios: []string{"s-one", "s-two"}}, {Name: "second", Proxiers: []string{"other"},
			Scenarios: []string{"s-two"}},
	}
}

const pass, fail, skip, broken = spec.Pass, spec.Fail, spec.Skip, spec.Broken

func TestVerdictsAndExitCodes(t *testing.T) {
	all := verdicts{"first": {"s-one": fail, "s-two": fail}}
	for name, c := range map[string]struct {
		world   world
		verdict Verdict
		reason  string
		code    int
		one     Standing // of s-one
	}{
		"all notice": {world{verdicts: all}, Caught, "", 0, Proved},
		"one does not": {world{verdicts: verdicts{"first": {"s-one": fail, "s-two": pass}}}, Survived, "", 1,
			Proved},
		"the other does not": {world{verdicts: verdicts{"first": {"s-two": fail}}}, Survived, "", 1, Missing},
		"one breaks": {world{verdicts: verdicts{"first": {"s-one": fail, "s-two": broken}}}, Broken,
			"s-two is broken: because", 2, Untried},
		"one fails anyway": {world{verdicts: verdicts{"": {"s-two": fail}, "first": {"s-one": fail}}}, Caught, "", 2,
			Proved},
		"one is skipped anyway": {world{verdicts: verdicts{"": {"s-two": skip}, "first": {"s-one": fail}}}, Caught, "", 0,
			Proved},
		"all are skipped": {world{verdicts: verdicts{"": {"s-one": skip, "s-two": skip}}}, Foreign, "because", 2,
			Untried},
		"nothing was done":      {world{verdicts: all, untouched: true}, Survived, "changed nothing", 1, Missing},
		"it cannot work at all": {world{verdicts: all, refused: true}, Broken, "no such chain", 2, Untried},
		"the child dies":        {world{verdicts: all, err: errors.New("killed")}, Broken, "killed", 2, Untried},
	} {
		p, err := Do(t.Context(), Options{
			Faults: twoFaults(), Scenarios: scenariosNamed("s-one", "s-two"), Proxiers: []string{"p"}, Parallel: 2,
			Run: c.world.run,
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Trials[0]; got.Verdict != c.verdict || !strings.Contains(got.Reason, c.reason) {
			t.Errorf("%s: %s (%s), want %s (%s)", name, got.Verdict, got.Reason, c.verdict, c.reason)
		}
		if p.Trials[1].Verdict != Foreign {
			t.Errorf("%s: a fault for another proxier is %s", name, p.Trials[1].Verdict)
		}
		if code := p.ExitCode(); code != c.code {
			t.Errorf("%s: exit code %d, want %d", name, code, c.code)
		}
		if got := p.Scenarios[0].State; got != c.one {
			t.Errorf("%s: s-one is %s, want %s", name, got, c.one)
		}
	}
}

func TestAScenarioWithoutAFaultFailsUnlessItIsImmune(t *testing.T) {
	o := Options{
		Faults: twoFaults(), Scenarios: scenariosNamed("s-one", "s-two", "s-three"), Proxiers: []string{"p", "other"},
		Run: world{verdicts: verdicts{"first": {"s-one": fail, "s-two": fail}, "second": {"s-two": fail}}}.run,
	}
	p, err := Do(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if p.Scenarios[1].ID != "s-three" || p.Scenarios[1].State != Unclaimed || p.ExitCode() != 1 {
		t.Errorf("%+v, exit code %d", p.Scenarios, p.ExitCode())
	}
	if want := []string{"first (p, other)", "second (other)"}; !slices.Equal(p.Scenarios[2].By, want) {
		t.Errorf("s-two has caught %v, not %v", p.Scenarios[2].By, want)
	}
	o.Immune = map[string]string{"s-three": "it is about the weather"}
	if p, err = Do(t.Context(), o); err != nil || p.Scenarios[1].State != IsImmune || p.ExitCode() != 0 {
		t.Errorf("%v: %+v, exit code %d", err, p.Scenarios, p.ExitCode())
	}
	o.Immune, o.Only = nil, regexp.MustCompile("second")
	if p, err = Do(t.Context(), o); err != nil || len(p.Trials) != 2 || p.ExitCode() != 0 {
		t.Errorf("%v: with some faults alone there are %d trials, exit code %d", err, len(p.Trials), p.ExitCode())
	}
}

// Only what --fault and --focus choose runs, without the fault as with it.
func TestNothingRunsThatIsNotChosen(t *testing.T) {
	g := NewWithT(t)
	for _, c := range []struct {
		options Options
		jobs    []string
		ids     []string
	}{
		{Options{}, []string{"p  [s-one s-two]", "other  [s-one s-two]", "p first [s-one s-two]", "other first [s-one s-two]",
			"other second [s-two]"}, []string{"s-one", "s-three", "s-two"}},
		{Options{Only: regexp.MustCompile("second")}, []string{"other  [s-two]", "other second [s-two]"}, []string{"s-two"}},
		{Options{Focus: regexp.MustCompile("one")}, []string{"p  [s-one]", "other  [s-one]", "p first [s-one]",
			"other first [s-one]"}, []string{"s-one"}},
		{Options{Focus: regexp.MustCompile("two"), Only: regexp.MustCompile("second"), Everything: true},
			[]string{"other  [s-two]", "other second [s-two]"}, []string{"s-two"}},
	} {
		var jobs []string
		o := c.options
		o.Faults, o.Scenarios, o.Proxiers = twoFaults(), scenariosNamed("s-one", "s-two", "s-three"), []string{"p", "other"}
		o.Run = func(ctx context.Context, j Job) (Outcome, error) {
			jobs = append(jobs, fmt.Sprintf("%s %s %v", j.Proxier, j.Fault, j.Scenarios))
			return world{}.run(ctx, j)
		}
		p, err := Do(t.Context(), o)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(jobs).To(Equal(c.jobs))
		var ids []string
		for _, s := range p.Scenarios {
			ids = append(ids, s.ID)
		}
		g.Expect(ids).To(Equal(c.ids))
	}
}

func TestChoicesThatWouldProveNothing(t *testing.T) {
	for want, o := range map[string]Options{
		"no fault names s-three":       {Focus: regexp.MustCompile("three")},
		"no fault or no scenario":      {Focus: regexp.MustCompile("four")},
		"no scenario matches: nothing": {Only: regexp.MustCompile("third")},
	} {
		o.Faults, o.Scenarios, o.Proxiers = twoFaults(), scenariosNamed("s-one", "s-two", "s-three"), []string{"p"}
		if _, err := Do(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Everything reports the other scenarios that notice a fault. Those that do not notice it do not make it a survivor.
func TestEverything(t *testing.T) {
	o := Options{
		Faults: twoFaults()[1:], Scenarios: scenariosNamed("s-one", "s-two", "s-three"), Proxiers: []string{"other"},
		Everything: true,
		Run:        world{verdicts: verdicts{"second": {"s-two": fail, "s-three": fail}}}.run,
	}
	p, err := Do(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if x := p.Trials[0]; x.Verdict != Caught || !slices.Equal(x.Also, []string{"s-three"}) {
		t.Errorf("%+v", x)
	}
}

func TestWhatIsPrintedAndWritten(t *testing.T) {
	p, err := Do(t.Context(), Options{
		Faults: twoFaults(), Scenarios: scenariosNamed("s-one", "s-two", "s-three"), Proxiers: []string{"p"},
		Run: world{verdicts: verdicts{"first": {"s-one": fail}}}.run,
	})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := p.Write(&b, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\033[31m✗  first  p        0s    s-one; NOT by s-two", "✓  s-one", "\033[31m✗  s-three   no fault names it",
		"s-two     passes on first in p", "1 survived",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("there is no %q in\n%s", want, b.String())
		}
	}
	folder := filepath.Join(t.TempDir(), "new")
	if err := p.WriteJSON(folder); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(folder, "prove.json"))
	if err != nil {
		t.Fatal(err)
	}
	var read Proof
	if err := json.Unmarshal(data, &read); err != nil || read.Trials[0].Verdict != Survived ||
		read.Scenarios[1].State != Unclaimed {
		t.Errorf("%v: %s", err, data)
	}
}

// A run that is interrupted keeps its verdicts. What has none is not run, and neither broken nor survived.
func TestAnInterruptedProofKeepsItsVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		during   string // the job that is interrupted: a fault, or "" for the control
		verdicts verdicts
		want     []Verdict // of first on p and on q, and of second on p and on q
		code     int
		printed  string
	}{
		"in the control": {"", nil, []Verdict{NotRun, NotRun, Foreign, NotRun}, 2, "0 caught, 0 survived, 0 broken, 1 not " +
			"applicable, 3 not run\nscenarios: 0 proved, 0 missing a fault, 0 immune, 0 not tried, 0 without a fault, 2 not run"},
		"after one was caught": {"second", verdicts{"first": {"s-one": fail, "s-two": fail}},
			[]Verdict{Caught, Caught, Foreign, NotRun}, 2, "s-two     not all faults that name it were tried; catches first (p, q)"},
		"after one survived": {"second", verdicts{"first": {"s-two": fail}}, []Verdict{Survived, Survived, Foreign, NotRun},
			1, "2 survived, 0 broken, 1 not applicable, 1 not run"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			ctx, interrupt := context.WithCancel(t.Context())
			o := Options{Faults: twoFaults(), Scenarios: scenariosNamed("s-one", "s-two"), Proxiers: []string{"p", "q"}}
			o.Faults[1].Proxiers = []string{"q"}
			o.Run = func(ctx context.Context, j Job) (Outcome, error) {
				if j.Fault == c.during {
					interrupt()
					return Outcome{}, errors.New("killed")
				}
				return world{verdicts: c.verdicts}.run(ctx, j)
			}
			p, err := Do(ctx, o)
			g.Expect(err).NotTo(HaveOccurred())
			for i, trial := range p.Trials {
				g.Expect(trial.Verdict).To(Equal(c.want[i]), "%s in %s: %s", trial.Fault, trial.Proxier, trial.Reason)
			}
			g.Expect(p.ExitCode()).To(Equal(c.code))
			var b strings.Builder
			g.Expect(p.Write(&b, false)).To(Succeed())
			g.Expect(b.String()).To(ContainSubstring(c.printed))
			g.Expect(b.String()).NotTo(ContainSubstring("killed"))
		})
	}
}

// A command of --exec with the name of a built-in proxier is not that proxier. A fault that changes nothing in a command
// does not apply to it; in other proxiers it survives.
func TestFaultsThatDoNotApplyToACommand(t *testing.T) {
	hook := faults.Fault{Name: "hook", Proxiers: []string{"nftables", "kube-proxy-nftables"}, Scenarios: []string{"s-one"}}
	seen := faults.Fault{Name: "seen", Scenarios: []string{"s-one"}}
	caught := verdicts{"hook": {"s-one": fail}, "seen": {"s-one": fail}}
	for name, c := range map[string]struct {
		proxier, outside string
		untouched        bool
		want             []Verdict // of hook and seen
	}{
		"built in":                      {"nftables", "", false, []Verdict{Caught, Caught}},
		"built in, untouched":           {"nftables", "", true, []Verdict{Survived, Survived}},
		"a command":                     {"mine", "mine", false, []Verdict{Foreign, Caught}},
		"a command, untouched":          {"mine", "mine", true, []Verdict{Foreign, Foreign}},
		"a command of that name":        {"nftables", "nftables", false, []Verdict{Foreign, Caught}},
		"a kube-proxy":                  {"kube-proxy-nftables", "kube-proxy-nftables", false, []Verdict{Caught, Caught}},
		"built in, beside some command": {"nftables", "mine", false, []Verdict{Caught, Caught}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			o := Options{Faults: []faults.Fault{hook, seen}, Scenarios: scenariosNamed("s-one"), Proxiers: []string{c.proxier},
				Outside: c.outside, Run: world{verdicts: caught, untouched: c.untouched}.run}
			p, err := Do(t.Context(), o)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect([]Verdict{p.Trials[0].Verdict, p.Trials[1].Verdict}).To(Equal(c.want))
			for _, trial := range p.Trials {
				if trial.Verdict == Foreign {
					g.Expect(slices.Concat(trial.Missed, trial.Caught)).To(BeEmpty())
				}
			}
			search := func(context.Context, string, string, int) (Found, error) {
				return map[bool]Found{false: {Case: "random-1-1", Cases: 8, Touched: 1}, true: {Cases: 8}}[c.untouched], nil
			}
			all, err := DoSearch(t.Context(), o, search, func(Search) {})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect([]Verdict{all.Searches[0].Verdict, all.Searches[1].Verdict}).To(Equal(c.want))
		})
	}
}
