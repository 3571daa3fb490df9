// SPDX-License-Identifier: Apache-2.0

package services

import (
	"slices"
	"strings"

	"github.com/viplab/viplab/suite/spec"
)

// notReady is the kind of failure of a proxier that does not converge.
const notReady = "not ready"

// kindsOf returns the kinds of disagreement between the oracle and what was seen: the rule, the protocol, and what was
// seen. A smaller case must fail in one of these ways, or it would fail for another reason.
func kindsOf(r spec.Result) []string {
	if r.Verdict != spec.Fail {
		return nil
	}
	var kinds []string
	for _, p := range Failed(r) {
		rule, _, _ := strings.Cut(p.Row, "/")
		for _, protocol := range []string{"udp", "sctp"} {
			if strings.Contains(p.Row, "/"+protocol) {
				rule += " " + protocol
			}
		}
		for _, how := range differences(p) {
			kinds = append(kinds, rule+" "+how)
		}
	}
	if len(kinds) == 0 {
		kinds = []string{notReady}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// mismatches are words of spec.Row.Judge that tell one kind of wrong answer from another.
var mismatches = []string{" received it", " accepted on port ", " saw ", "not evenly spread", "not one server",
	"answered by "}

// differences returns how what was seen differs from what a row wants: the mismatch of answers, or the outcomes.
func differences(p spec.Probed) []string {
	var out []string
	for _, words := range mismatches {
		if strings.Contains(p.Got, words) {
			out = append(out, strings.TrimSpace(words))
		}
	}
	if len(out) == 0 {
		return p.Outcomes
	}
	return out
}
