// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/viplab/viplab/internal/suite/report"
)

func TestRemark(t *testing.T) {
	one := make([]report.Result, 1)
	f := conformFlags{}
	f.proxiers.given = func(string) bool { return false }
	for _, c := range []struct {
		report report.Report
		want   string
	}{
		{report.Report{Results: one, Proxiers: []report.Proxier{{Passed: 1}}}, ""},
		{report.Report{Results: one, Proxiers: []report.Proxier{{Failed: 1}}}, ""},
		{report.Report{Results: one, Proxiers: []report.Proxier{{Skipped: 1}}}, "no scenario ran: nothing is proved\n"},
		{report.Report{Suite: report.Suite{Shard: "2/3", Whole: 1}}, "shard 2/3 is empty: there are 1 scenarios\n"},
	} {
		if got := f.remark(t.Context(), c.report); got != c.want {
			t.Errorf("%+v: %q, want %q", c.report.Proxiers, got, c.want)
		}
	}
}
