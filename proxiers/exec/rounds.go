// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"sync"
)

// Rounds recognizes the beginning and the end of a sync round in a program's log. Each pattern matches one line. The
// text of its first group, if any, names one of several concurrent rounds, such as those of two IP families. Concurrent
// rounds without a name are over when none of them runs.
type Rounds struct {
	// Begins matches the line that the program logs before it programs anything in a round. Ends matches the line that
	// it logs when all of the round's work is done, even if it failed.
	Begins, Ends *regexp.Regexp
}

// rounds counts the rounds of one process. It is safe for concurrent use.
type rounds struct {
	patterns Rounds

	mu      sync.Mutex
	line    []byte // the current, incomplete line
	running map[string]int
	idle    map[string]int // how often the last running round has ended
	moved   chan struct{}  // closed and replaced whenever a round ends
}

func newRounds(patterns Rounds) *rounds {
	return &rounds{patterns: patterns, running: map[string]int{}, idle: map[string]int{}, moved: make(chan struct{})}
}

// longestLine is the longest line that is matched, in bytes. The rest of a longer line is treated as another line.
const longestLine = 64 << 10

// Write parses the process's log.
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
		r.running[which]++
	}
	if which, yes := match(r.patterns.Ends, line); yes && r.running[which] > 0 {
		if r.running[which]--; r.running[which] == 0 {
			r.idle[which]++
		}
		close(r.moved)
		r.moved = make(chan struct{})
	}
}

// match reports whether the pattern matches the line, and returns the text of its first group.
func match(pattern *regexp.Regexp, line []byte) (which string, yes bool) {
	found := pattern.FindSubmatch(line)
	if len(found) > 1 {
		which = string(found[1])
	}
	return which, found != nil
}

// known reports whether the process logs its rounds at all.
func (r *rounds) known() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.running) > 0
}

// over returns when every round that is running now has ended.
func (r *rounds) over(ctx context.Context) error { return r.wait(ctx, r.now()) }

// now returns how often rounds have to become idle until every round that is running now has ended.
func (r *rounds) now() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	until := map[string]int{}
	for which, n := range r.running {
		if n > 0 {
			until[which] = r.idle[which] + 1
		}
	}
	return until
}

// wait returns when rounds have become idle that often.
func (r *rounds) wait(ctx context.Context, until map[string]int) error {
	for {
		r.mu.Lock()
		over := true
		for which, n := range until {
			over = over && r.idle[which] >= n
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
