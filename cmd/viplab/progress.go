// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/suite/spec"
)

// progress prints the progress of a run: on a terminal one line that is rewritten, elsewhere a line for every few
// cells.
type progress struct {
	w        io.Writer
	terminal bool
	began    time.Time
	what     string // what the cells are; empty means scenarios
	every    int    // how many cells are between two lines off a terminal; 0 means everyCells

	mu      sync.Mutex
	failed  int
	printed int // how many cells had ended when the last line was written
}

// everyCells is the number of cells between two lines if the output is not a terminal.
const everyCells = 25

func (p *progress) listen(e engine.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.Result == nil {
		return
	}
	if e.Result.Verdict == spec.Fail || e.Result.Verdict == spec.Broken {
		p.failed++
	}
	switch {
	case p.terminal:
		fmt.Fprintf(p.w, "\r\033[K%s  %s", p.status(e), e.Cell.Scenario.ID)
	case e.Ended-p.printed >= cmp.Or(p.every, everyCells) || e.Ended == e.Total:
		p.printed = e.Ended
		fmt.Fprintln(p.w, p.status(e))
	}
}

func (p *progress) status(e engine.Event) string {
	s := fmt.Sprintf("%d of %d %s, %.1f s", e.Ended, e.Total, cmp.Or(p.what, "scenarios"), time.Since(p.began).Seconds())
	if p.failed > 0 {
		s += fmt.Sprintf(", %d failed", p.failed)
	}
	return s
}

// end clears the line.
func (p *progress) end() {
	if p.terminal {
		fmt.Fprint(p.w, "\r\033[K")
	}
}
