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

// progress prints the progress of a run: on a terminal one line that is rewritten, elsewhere a line every ten seconds,
// and after a minute every minute.
type progress struct {
	w        io.Writer
	terminal bool
	began    time.Time
	what     string                          // what the cells are; empty means scenarios
	failure  func(*engine.Cell, spec.Result) // prints a failure when it happens; nil if failures are printed later

	mu      sync.Mutex
	last    engine.Event
	failed  int
	broken  int
	skipped int
	printed time.Duration // when the last line was written, since the start
	done    chan struct{} // closed by end; nil before the first line is due
}

func (p *progress) listen(e engine.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.Result == nil {
		return
	}
	p.last = e
	switch e.Result.Verdict {
	case spec.Skip:
		p.skipped++
	case spec.Fail, spec.Broken:
		if e.Result.Verdict == spec.Fail {
			p.failed++
		} else {
			p.broken++
		}
		if p.failure != nil {
			p.clear()
			p.failure(e.Cell, *e.Result)
		}
	}
	if p.terminal {
		fmt.Fprintf(p.w, "\r\033[K%s  %s", p.status(), e.Cell.Scenario.ID)
	} else if p.done == nil {
		p.done = make(chan struct{})
		go p.tick(p.done)
	}
}

// tick prints lines until the run ends, also while nothing happens.
func (p *progress) tick(done <-chan struct{}) {
	clock := time.NewTicker(time.Second)
	defer clock.Stop()
	for {
		select {
		case <-done:
			return
		case <-clock.C:
		}
		p.mu.Lock()
		now := time.Since(p.began)
		if since := now - p.printed; since >= time.Minute || since >= 10*time.Second && now < 65*time.Second {
			p.printed = now
			fmt.Fprintln(p.w, p.status())
		}
		p.mu.Unlock()
	}
}

// status counts what runs; what is skipped takes no time.
func (p *progress) status() string {
	s := fmt.Sprintf("%d of %d %s, %.0f s", p.last.Ended-p.skipped, p.last.Total-p.skipped, cmp.Or(p.what, "scenarios"),
		time.Since(p.began).Seconds())
	if p.failed > 0 {
		s += fmt.Sprintf(", %d failed", p.failed)
	}
	if p.broken > 0 {
		s += fmt.Sprintf(", %d broken", p.broken)
	}
	return s
}

// clear clears the line of a terminal, for other output.
func (p *progress) clear() {
	if p.terminal {
		fmt.Fprint(p.w, "\r\033[K")
	}
}

// end ends the lines.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	if p.done != nil {
		close(p.done)
		p.done = nil
	}
}
