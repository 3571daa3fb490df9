// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"testing"

	"github.com/viplab/viplab/proxiers/none"
	"github.com/viplab/viplab/suite"
	"github.com/viplab/viplab/suite/spec"
)

// A test of your own proxier consists of this function and a TestMain:
//
//	func TestMain(m *testing.M) { labtest.Main(m) }
func ExampleRunConformance() {
	_ = func(t *testing.T) {
		suite.RunConformance(t, suite.Options{
			Proxiers: []spec.Proxier{none.New()}, // in place of your own
			Version:  "v1.4.0",
			Skip:     map[string]string{"clusterip-spread": "it spreads by hash: https://example.org/issues/17"},
		})
	}
}
