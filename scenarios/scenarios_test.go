// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"regexp"
	"slices"
	"testing"

	"github.com/viplab/viplab/suite/spec"
)

// All checks that ids are unique, every scenario is well written and has a row, and every row a scenario.
func TestAll(t *testing.T) {
	if _, err := All(); err != nil {
		t.Error(err)
	}
}

// TestChapters: the groups of each chapter are exactly those of its scenarios.
func TestChapters(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	group := map[string]string{}
	for _, s := range all {
		group[s.ID] = s.Group
	}
	for i, c := range chapters {
		var groups []string
		for _, s := range c.scenarios() {
			groups = append(groups, group[s.ID])
		}
		slices.Sort(groups)
		if got, want := slices.Sorted(slices.Values(c.groups)), slices.Compact(groups); !slices.Equal(got, want) {
			t.Errorf("chapter %d: lists the groups %q, and its scenarios belong to %q", i, got, want)
		}
	}
}

// TestMatching: a part of the scenarios is the same, whether it is taken from all or made alone.
func TestMatching(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	for _, focus := range []string{".", "^hairpin-", "^np-", "calico", "^rs-ipvs-scheduler-dh$", "^nothing$"} {
		keep := regexp.MustCompile(focus).MatchString
		var want []string
		for _, s := range all {
			if keep(s.ID) {
				want = append(want, text(s))
			}
		}
		some, err := Matching(keep)
		if err != nil {
			t.Errorf("%s: %v", focus, err)
		}
		var got []string
		for _, s := range some {
			got = append(got, text(s))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %d scenarios\n%v\nwant %d\n%v", focus, len(got), got, len(want), want)
		}
	}
}

func text(s spec.Scenario) string {
	return s.ID + " " + s.Group + " " + string(s.Priority) + " " + s.Source + " " + s.Why
}
