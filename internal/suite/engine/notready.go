// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"slices"
	"time"

	"github.com/viplab/viplab/internal/suite/expected"
	"github.com/viplab/viplab/suite/expect"
	"github.com/viplab/viplab/suite/spec"
)

// knownLimit lowers applyLimit for a program that is expected not to converge. A program that can converge does so at
// once.
const knownLimit = 15 * time.Second

// notReadyExpected reports whether an entry expects that the program does not converge.
func notReadyExpected(entries []expect.Entry) bool {
	return slices.ContainsFunc(entries, func(e expect.Entry) bool {
		return e.ForWholeScenario() && e.Got == expect.NotReady
	})
}

// notReadyError is the error of a program that does not converge.
type notReadyError struct{ error }

func (e notReadyError) Unwrap() error { return e.error }

// outcomesOf returns the outcomes of the rows that do not hold, or NotReady.
func outcomesOf(r *spec.Result, err error) []string {
	if errors.As(err, new(notReadyError)) {
		return []string{expect.NotReady}
	}
	return expected.Outcomes(r.Probed)
}
