// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2/reporters"

	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/suite/spec"
)

func TestJUnit(t *testing.T) {
	var results []spec.Result
	for i, v := range []spec.Verdict{spec.Pass, spec.Fail, spec.Broken, spec.Skip} {
		results = append(results, spec.Result{Scenario: spec.Scenario{ID: "one"}, Proxier: []string{"p", "p", "q", "q"}[i],
			Verdict: v, Reason: "because <of>", Took: time.Second})
	}
	folder := t.TempDir()
	if err := report.New("v", "k", "c", results).WriteJUnit(folder); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "junit.xml"))
	if err != nil {
		t.Fatal(err)
	}
	var read reporters.JUnitTestSuites
	if err := xml.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	if read.Tests != 4 || read.Failures != 1 || read.Errors != 1 || read.Disabled != 1 || len(read.TestSuites) != 2 {
		t.Errorf("%s", text)
	}
	p, q := read.TestSuites[0].TestCases, read.TestSuites[1].TestCases
	if p[0].Failure != nil || !strings.Contains(p[1].Failure.Description, "because <of>") || q[0].Error == nil ||
		q[1].Skipped.Message != "because <of>" || p[0].Time != 1 {
		t.Errorf("%s", text)
	}
}
