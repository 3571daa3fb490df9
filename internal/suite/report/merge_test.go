// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"

	"github.com/viplab/viplab/suite/spec"
)

func TestMergeKeepsTheWorstVerdict(t *testing.T) {
	one := New("1", "6.1", "dual", []spec.Result{result("a-one", "p", spec.Pass), result("b-two", "p", spec.Skip)})
	two := New("1", "6.12", "dual", []spec.Result{result("a-one", "p", spec.Fail), result("b-two", "p", spec.Pass),
		result("a-one", "q", spec.Skip)})
	for _, m := range []Report{Merge(one, two), Merge(two, one)} {
		got := map[string]spec.Verdict{}
		for _, r := range m.Results {
			got[r.Scenario+" "+r.Proxier] = r.Verdict
		}
		for cell, want := range map[string]spec.Verdict{"a-one p": spec.Fail, "b-two p": spec.Pass, "a-one q": spec.Skip} {
			if got[cell] != want {
				t.Errorf("%s: %s, want %s", cell, got[cell], want)
			}
		}
		if len(m.Proxiers) != 2 || m.Suite.Scenarios != 2 || m.Kernel != "6.1; 6.12" {
			t.Errorf("sums: %+v", m)
		}
		for _, p := range m.Proxiers {
			if want := map[string]string{"p": "fail", "q": "none"}[p.Name]; p.Verdict != want {
				t.Errorf("%s: %s, want %s", p.Name, p.Verdict, want)
			}
		}
	}
}
