// SPDX-License-Identifier: Apache-2.0

// Package endpoints holds the scenarios of the pods behind a Service: how they come and go, which of them are near, and
// what happens when there are none.
package endpoints

import (
	"slices"

	"github.com/viplab/viplab/suite/spec"
)

// Scenarios returns the chapter's scenarios.
func Scenarios() []spec.Scenario {
	return slices.Concat(
		itplocal(), lifecycle(), sliceContents(), sliceMoves(), selection(), noendpoints(), refusals(), topology(),
		hints(),
	)
}
