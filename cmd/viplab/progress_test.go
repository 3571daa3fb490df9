// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"strings"
	"testing"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/suite/spec"
)

func TestProgressCounts(t *testing.T) {
	p := progress{w: io.Discard}
	defer p.end()
	for i, v := range []spec.Verdict{spec.Pass, spec.Skip, spec.Fail, spec.Broken, spec.Broken, spec.Known} {
		p.listen(engine.Event{Result: &spec.Result{Verdict: v}, Ended: i + 1, Total: 9})
	}
	if s := p.status(); !strings.HasPrefix(s, "5 of 8 scenarios, ") || !strings.HasSuffix(s, " s, 1 failed, 2 broken") {
		t.Error(s)
	}
}
