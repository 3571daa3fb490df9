// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/viplab/viplab/lab/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

func TestACellIsMeasured(t *testing.T) {
	subjects, err := findSubjects([]string{"iptables"})
	if err != nil {
		t.Fatal(err)
	}
	if err := subjects[0].proxier.Usable(t.Context()); err != nil {
		t.Skip(err)
	}
	r, err := measure(t.Context(), subjects[0], 3, 1)
	if err != nil {
		t.Fatal(err)
	}
	for what, figure := range map[string]float64{
		"first sync": r.First, "added": r.Added, "changed": r.Changed, "removed": r.Removed, "connect": r.Connect,
		"direct": r.Direct,
	} {
		if figure <= 0 {
			t.Errorf("%s: %v", what, figure)
		}
	}
}

func TestMistakes(t *testing.T) {
	if _, err := findSubjects([]string{"iptables", "ipvz"}); err == nil {
		t.Error("an unknown proxier is taken")
	}
	for _, bad := range []string{"", "0", "100,x", "1000000"} {
		if _, err := parseSizes(bad); err == nil {
			t.Errorf("sizes %q are taken", bad)
		}
	}
}
