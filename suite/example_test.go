// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"regexp"
	"testing"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/proxiers/none"
	"github.com/viplab/viplab/scenarios"
	"github.com/viplab/viplab/suite"
	"github.com/viplab/viplab/suite/spec"
)

// A test of your own proxier consists of this function and a TestMain:
//
//	func TestMain(m *testing.M) { sandbox.Main(m) }
func ExampleRunConformance() {
	_ = func(t *testing.T) {
		catalogue, err := scenarios.All()
		if err != nil {
			t.Fatal(err)
		}
		suite.RunConformance(t, suite.Options{
			Proxiers:  []spec.Proxier{none.New()},
			Scenarios: catalogue,
			Focus:     regexp.MustCompile("^clusterip-"),
			Stack:     lab.Dual,
			Out:       t.ArtifactDir(),
		})
	}
}

func TestRunConformance(t *testing.T) {
	catalogue, err := scenarios.All()
	if err != nil {
		t.Fatal(err)
	}
	results := suite.RunConformance(t, suite.Options{
		Proxiers: []spec.Proxier{none.New()}, Scenarios: catalogue,
		Focus: regexp.MustCompile("^nodeport-allocation-rules$"), Stack: lab.Dual,
	})
	if len(results) != 1 || results[0].Verdict != spec.Pass {
		t.Errorf("%+v", results)
	}
}
