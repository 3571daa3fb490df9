// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/viplab/viplab/internal/suite/expected"
	"github.com/viplab/viplab/suite/expect"
	"github.com/viplab/viplab/suite/spec"
)

// TestExpectationsAreKeptTrue: the file that a run writes has the entries that it was given, without those that have
// become wrong, and what they did not explain.
func TestExpectationsAreKeptTrue(t *testing.T) {
	failing := func(known string, rows ...string) (out []spec.Probed) {
		for _, r := range rows {
			out = append(out, spec.Probed{Row: r, Family: "v4", Known: known, Outcomes: []string{"Reply"}})
		}
		return out
	}
	run := expect.Run{Mode: "ipvs", Version: "v1.36.3", With: map[string]string{"ip": "4", "pods": "bridge"}}
	holding := spec.Probed{Row: "d", Family: "v4", Holds: true}
	for _, c := range []struct {
		name  string
		given string
		r     spec.Result
		want  string
	}{
		{"nothing is known", "", spec.Result{Probed: failing("", "b", "a")}, "s [ipvs] [a b] Reply"},
		{"a later step fails", "{scenario: s, modes: [ipvs], rows: [a]}",
			spec.Result{Probed: append(failing("why", "a"), failing("", "b")...)},
			"s [ipvs] [a] , s [ipvs] [b] Reply"},
		{"another mode", "{scenario: s, modes: [iptables], rows: [a]}", spec.Result{Probed: failing("", "b")},
			"s [iptables] [a] , s [ipvs] [b] Reply"},
		{"the whole fails otherwise", "{scenario: s, got: Silence}", spec.Result{Probed: failing("", "b")},
			"s [ipvs] [b] Reply"},
		{"it passes", "{scenario: s, modes: [ipvs, iptables]}",
			spec.Result{Reason: expected.Surprise + "the scenario passes", Probed: []spec.Probed{holding}},
			"s [iptables] [] "},
		{"a row holds", "{scenario: s, modes: [ipvs], rows: [a, d]}",
			spec.Result{Reason: expected.Surprise + "what holds is d v4", Probed: append(failing("why", "a"), holding)},
			"s [ipvs] [a] Reply"},
		{"an entry for other clusters", "{scenario: s, with: {pods: routed}}", spec.Result{Probed: failing("", "b")},
			"s [] [] , s [ipvs] [b] Reply"},
		{"an entry for other releases", `{scenario: s, versions: "<1.30"}`, spec.Result{Probed: failing("", "b")},
			"s [] [] , s [ipvs] [b] Reply"},
		{"it does not converge", "", spec.Result{NotReady: true, Probed: failing("", "a")}, "s [ipvs] [] NotReady"},
	} {
		text := "proxier: x\nexpect: [" + strings.Replace(c.given+" ", "} ", ", issue: none, reason: r}", 1) + "]"
		file, err := expect.Parse("x.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		c.r.Scenario.ID = "s"
		var got []string
		for _, e := range withFailure(slices.Clone(file.Expect), c.r, run) {
			got = append(got, fmt.Sprint(e.Scenario, " ", e.Modes, " ", e.Rows, " ", e.Got))
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s: %q, want %q", c.name, text, c.want)
		}
	}
}
