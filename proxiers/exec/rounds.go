// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"regexp"
	"sync"
)

// Rounds tell by what a program logs when a round of its work begins and when it ends. Each pattern matches one line.
// What its first group catches, if it has one, tells the rounds apart that go on beside each other, as those of two IP
// families.
type Rounds struct {
	// Begins is logged before anything of the round is programmed, Ends when all of it is done, whether it failed or not.
	Begins, Ends *regexp.Regexp
}

// rounds are those of one process. They are safe for concurrent use.
type rounds struct {
	patterns Rounds

	mu    sync.Mutex
	line  []byte // that is not complete yet
	begun map[string]int
	ended map[string]int
	moved chan struct{} // closed and replaced whenever a round ends
}

func newRounds(patterns Rounds) *rounds {
	return &rounds{patterns: patterns, begun: map[string]int{}, ended: map[string]int{}, moved: make(chan struct{})}
}

// longestLine is how much of a line is looked at. Of a longer one, the end is taken for another line.
const longestLine = 64 << 10

// Write takes what the process logs.
func (r *rounds) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(p)
	for {
		line, rest, whole := bytes.Cut(p, []byte("\n"))
		r.line = append(r.line, line...)
		if !whole && len(r.line) < longestLine {
			return n, nil
		}
		r.take(r.line)
		r.line, p = r.line[:0], rest
	}
}

func (r *rounds) take(line []byte) {
	if which, yes := match(r.patterns.Begins, line); yes {
		r.begun[which]++
	}
	if which, yes := match(r.patterns.Ends, line); yes {
		r.ended[which]++
		close(r.moved)
		r.moved = make(chan struct{})
	}
}

// match returns what the first group has caught.
func match(pattern *regexp.Regexp, line []byte) (which string, yes bool) {
	found := pattern.FindSubmatch(line)
	if len(found) > 1 {
		which = string(found[1])
	}
	return which, found != nil
}

// known says whether the process tells of its rounds at all.
func (r *rounds) known() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.begun) > 0
}

// over returns when every round that goes on now has ended.
func (r *rounds) over(ctx context.Context) error { return r.wait(ctx, r.now()) }

// now is how many rounds have begun.
func (r *rounds) now() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.begun)
}

// wait returns when so many rounds have ended.
func (r *rounds) wait(ctx context.Context, until map[string]int) error {
	for {
		r.mu.Lock()
		over := true
		for which, n := range until {
			over = over && r.ended[which] >= n
		}
		moved := r.moved
		r.mu.Unlock()
		if over {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("wait for the end of a round of its work: %w", context.Cause(ctx))
		}
	}
}
