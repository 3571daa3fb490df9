// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"

	"github.com/onsi/ginkgo/v2/reporters"

	"github.com/viplab/viplab/suite/spec"
)

// WriteJUnit writes junit.xml into the folder: a suite for each proxier. A run in Ginkgo leaves its own.
func (r Report) WriteJUnit(folder string) error {
	var all reporters.JUnitTestSuites
	for _, p := range r.Proxiers {
		s := reporters.JUnitTestSuite{
			Name: p.Name, Package: r.Cluster, Tests: p.Passed + p.Failed + p.Skipped + p.Broken, Skipped: p.Skipped,
			Errors: p.Broken, Failures: p.Failed, Time: float64(p.TookMS) / 1000,
		}
		for _, x := range r.Results {
			if x.Proxier == p.Name {
				s.TestCases = append(s.TestCases, testCase(x))
			}
		}
		all.Tests, all.Errors, all.Failures = all.Tests+s.Tests, all.Errors+s.Errors, all.Failures+s.Failures
		all.Disabled, all.Time = all.Disabled+s.Skipped, all.Time+s.Time
		all.TestSuites = append(all.TestSuites, s)
	}
	data, err := xml.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Errorf("encode junit.xml: %w", err)
	}
	return os.WriteFile(filepath.Join(folder, "junit.xml"), append([]byte(xml.Header), append(data, '\n')...), 0o644)
}

func testCase(x Result) reporters.JUnitTestCase {
	c := reporters.JUnitTestCase{
		Name: fmt.Sprintf("%s on %s", x.Scenario, x.Proxier), Classname: x.Proxier, Status: string(x.Verdict),
		Time: float64(x.TookMS) / 1000,
	}
	switch x.Verdict {
	case spec.Fail:
		c.Failure = &reporters.JUnitFailure{Message: x.Scenario + " fails", Type: "failed", Description: x.Reason}
	case spec.Broken:
		c.Error = &reporters.JUnitError{Message: x.Scenario + " could not be judged", Type: "broken", Description: x.Reason}
	case spec.Skip:
		c.Skipped = &reporters.JUnitSkipped{Message: x.Reason}
	}
	return c
}
