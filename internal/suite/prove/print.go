// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/viplab/viplab/internal/suite/report"
)

// symbols mark verdicts and standings.
var symbols = map[Verdict]string{Caught: "✓", Survived: "✗", Foreign: "–", Broken: "!"}

var standings = map[Standing]string{
	Proved: "✓", Missing: "✗", Unclaimed: "✗", IsImmune: "–", Untried: "–", Pending: "–",
}

// Write prints the faults with the scenarios that caught them, then the scenarios with the faults that they caught.
// With colour, failures are red.
func (p *Proof) Write(w io.Writer, colour bool) error {
	var b strings.Builder
	var trials, scenarios []string
	for _, x := range p.Trials {
		if x.Verdict != Foreign && x.Verdict != NotRun {
			trials = append(trials, strings.Join([]string{symbols[x.Verdict], x.Fault, x.Proxier, took(x), x.account()}, "\t"))
		}
	}
	for _, s := range p.Scenarios {
		if s.State != Pending || len(s.By) > 0 {
			scenarios = append(scenarios, strings.Join([]string{standings[s.State], s.ID, s.account()}, "\t"))
		}
	}
	writeTable(&b, "\tfault\tproxier\ttime\tnoticed by", trials)
	writeTable(&b, "\tscenario\tcatches", scenarios)
	for _, c := range p.Controls {
		if c.Verdict == Broken {
			fmt.Fprintf(&b, "! %s without a fault: %s\n", c.Proxier, c.Reason)
		}
	}
	b.WriteString(p.summary())
	for line := range strings.Lines(b.String()) {
		if colour && (strings.HasPrefix(line, "✗") || strings.HasPrefix(line, "!")) {
			line = "\033[31m" + strings.TrimSuffix(line, "\n") + "\033[0m\n"
		}
		if _, err := io.WriteString(w, line); err != nil {
			return err
		}
	}
	return nil
}

// writeTable prints lines of cells below a head, and nothing if there are none.
func writeTable(w io.Writer, head string, lines []string) {
	if len(lines) == 0 {
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, line := range append([]string{head}, lines...) {
		fmt.Fprintln(t, line)
	}
	t.Flush()
	fmt.Fprintln(w)
}

func took(t Trial) string {
	return (time.Duration(t.TookMS) * time.Millisecond).Round(100 * time.Millisecond).String()
}

func (t Trial) account() string {
	var parts []string
	for _, p := range []struct {
		what string
		rows []string
	}{{"", t.Caught}, {"NOT by ", t.Missed}, {"also by ", t.Also}} {
		if len(p.rows) > 0 {
			parts = append(parts, p.what+strings.Join(p.rows, ", "))
		}
	}
	if t.Reason != "" {
		parts = append(parts, string(t.Verdict)+": "+t.Reason)
	}
	return strings.Join(parts, "; ")
}

func (s Scenario) account() string {
	switch s.State {
	case Unclaimed:
		return "no fault names it"
	case IsImmune:
		return "cannot be made to fail: " + s.Reason
	case Untried:
		return "not tried: the faults that name it do not apply to these proxiers, this kernel or this cluster"
	}
	text := strings.Join(s.By, ", ")
	if s.State == Pending {
		return "not all faults that name it were tried; catches " + text
	}
	if s.Reason != "" {
		text = s.Reason + "; catches " + text
	}
	return text
}

func (p *Proof) summary() string {
	trials, all := map[Verdict]int{}, map[Standing]int{}
	for _, t := range p.Trials {
		trials[t.Verdict]++
	}
	for _, s := range p.Scenarios {
		all[s.State]++
	}
	return fmt.Sprintf("faults in proxiers: %d caught, %d survived, %d broken, %d not applicable%s\nscenarios: %d "+
		"proved, %d missing a fault, %d immune, %d not tried, %d without a fault%s\n",
		trials[Caught], trials[Survived], trials[Broken], trials[Foreign], notRun(trials[NotRun]),
		all[Proved], all[Missing], all[IsImmune], all[Untried], all[Unclaimed], notRun(all[Pending]))
}

// notRun counts what an interrupted run has left, if there is any.
func notRun(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d not run", n)
}

// WriteJSON writes prove.json into the folder, which it creates if necessary.
func (p *Proof) WriteJSON(folder string) error {
	return report.WriteJSON(filepath.Join(folder, "prove.json"), p)
}
