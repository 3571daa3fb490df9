// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/xml"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/viplab/viplab/suite/spec"
)

// The elements of a JUnit file that build servers agree on.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Tests    int          `xml:"tests,attr"`
		Disabled int          `xml:"disabled,attr"`
		Errors   int          `xml:"errors,attr"`
		Failures int          `xml:"failures,attr"`
		Time     float64      `xml:"time,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Package  string      `xml:"package,attr"`
		Tests    int         `xml:"tests,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Errors   int         `xml:"errors,attr"`
		Failures int         `xml:"failures,attr"`
		Time     float64     `xml:"time,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name       string          `xml:"name,attr"`
		Class      string          `xml:"classname,attr"`
		Status     spec.Verdict    `xml:"status,attr"`
		Time       float64         `xml:"time,attr"`
		Properties []junitProperty `xml:"properties>property"`
		Skipped    *junitMessage   `xml:"skipped,omitempty"`
		Error      *junitMessage   `xml:"error,omitempty"`
		Failure    *junitMessage   `xml:"failure,omitempty"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr,omitempty"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit writes junit.xml into the folder: a suite for each proxier.
func (r Report) WriteJUnit(folder string) error {
	var all junitSuites
	for _, p := range r.Proxiers {
		s := junitSuite{
			Name: p.Name, Package: r.Cluster, Tests: p.Passed + p.Known + p.Failed + p.Skipped + p.Broken, Skipped: p.Skipped,
			Errors: p.Broken, Failures: p.Failed, Time: float64(p.TookMS) / 1000,
		}
		for _, x := range r.only(func(x Result) bool { return x.Proxier == p.Name }) {
			s.Cases = append(s.Cases, x.junit())
		}
		all.Tests, all.Errors, all.Failures = all.Tests+s.Tests, all.Errors+s.Errors, all.Failures+s.Failures
		all.Disabled, all.Time = all.Disabled+s.Skipped, all.Time+s.Time
		all.Suites = append(all.Suites, s)
	}
	data, err := xml.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Errorf("encode junit.xml: %w", err)
	}
	return WriteFile(filepath.Join(folder, "junit.xml"), append([]byte(xml.Header), append(data, '\n')...))
}

func (x Result) junit() junitCase {
	c := junitCase{
		Name: x.Scenario, Class: strings.Trim(x.Proxier+"."+x.Group, "."), Status: x.Verdict,
		Time: float64(x.TookMS) / 1000,
		Properties: []junitProperty{
			{"group", x.Group}, {"priority", string(x.Priority)}, {"why", x.Why},
		},
	}
	for _, f := range x.Needs {
		c.Properties = append(c.Properties, junitProperty{"feature", string(f)})
	}
	for _, k := range x.Known {
		c.Properties = append(c.Properties, junitProperty{"known", k})
	}
	switch x.Verdict {
	case spec.Fail:
		c.Failure = &junitMessage{x.Scenario + " fails", "failed", x.Reason}
	case spec.Broken:
		c.Error = &junitMessage{x.Scenario + " could not be judged", "broken", x.Reason}
	case spec.Skip:
		c.Skipped = &junitMessage{Message: x.Reason}
	}
	return c
}
