// SPDX-License-Identifier: Apache-2.0

package policycalico

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/observe"
)

// entry is a jump from a built-in chain.
type entry struct {
	table    xtables.TableName
	from, to string
}

var entries = []entry{
	{xtables.Filter, "FORWARD", chainForward}, {xtables.Filter, "OUTPUT", chainOutput},
	{raw, "PREROUTING", chainPrerouting},
}

// first says whether the jump is there once, and before all other rules.
func (e entry) first(tables xtables.Tables) bool {
	return len(tables.Of(e.table).Jumps(e.from, e.to)) == 1 && tables.Of(e.table).Chains[e.from][0].Target() == e.to
}

// who says what stands in that place.
func (e entry) who(tables xtables.Tables) string {
	if rules := tables.Of(e.table).Chains[e.from]; len(rules) > 0 {
		return fmt.Sprintf("%s %s begins with %q", e.table, e.from, rules[0])
	}
	return fmt.Sprintf("%s %s is empty", e.table, e.from)
}

// A program that wants the first place too moves back each time that this one does. After mostMoves moves, none of
// which had rest from the one before, the place is left to it for a truce.
const (
	mostMoves = 20
	rest      = 10 * time.Second
	truce     = time.Minute
)

// task is something that goes on by itself until it is ended.
type task struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// watch begins to watch over the place of the jumps, until release.
func (f *family) watch() error {
	if f.watching != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	var chains []string
	for _, e := range entries {
		chains = append(chains, e.from)
	}
	changes, err := observe.ChainChanges(ctx, f.ns, protocolOfTables(f.ip), chains...)
	if err != nil {
		cancel()
		return err
	}
	f.watching = &task{cancel: cancel, done: make(chan struct{})}
	go func(done chan struct{}) {
		defer close(done)
		f.keepPlace(ctx, changes)
	}(f.watching.done)
	return nil
}

// keepPlace takes the place back after each change that has taken it.
func (f *family) keepPlace(ctx context.Context, changes <-chan struct{}) {
	var moves int
	var last time.Time
	for range changes {
		var other string
		err := observe.Await(ctx, nil, func(ctx context.Context) (err error) {
			other, err = f.reclaim(ctx)
			return err
		})
		if err != nil || other == "" { // it fails when the watch ends
			continue
		}
		if time.Since(last) > rest {
			moves = 0
		}
		if moves, last = moves+1, time.Now(); moves < mostMoves {
			continue
		}
		f.log.Error(fmt.Sprintf("IP%s: another program insists on the place that the chains of policies need: for the "+
			"%dth time in a row, %s; what that accepts is not "+
			"judged; the place is left to it for %s; let that program append its rule, or insert it once", f.ip, moves, other,
			f.truce))
		moves = 0
		select {
		case <-ctx.Done():
		case <-time.After(f.truce):
		}
	}
}

func protocolOfTables(ip lab.Family) uint8 {
	if ip == lab.V6 {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

// release ends the watch, and returns when it has ended.
func (f *family) release() {
	f.mu.Lock()
	watching := f.watching
	f.watching = nil
	f.mu.Unlock()
	if watching != nil {
		watching.cancel()
		<-watching.done // which may have to take the lock once more
	}
}

// reclaim puts the jumps back where they belong, and says what was in their place, nothing if they were there. Then
// everything is written, as whoever took them away may have taken more.
func (f *family) reclaim(ctx context.Context) (other string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next == nil || ctx.Err() != nil {
		return "", nil // nothing is to be there any more
	}
	if f.held != nil {
		if other, err = f.displaced(ctx); other == "" || err != nil {
			return "", err
		}
		f.held = nil
	}
	if err = f.write(ctx); err != nil {
		f.log.Warn(fmt.Sprintf("keep the place of the chains for IP%s: %v", f.ip, err))
	}
	return other, err
}

// displaced says what is in the place of a jump; nothing if all are where they belong.
func (f *family) displaced(ctx context.Context) (string, error) {
	tables, err := f.programs.Save(ctx)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if !e.first(tables) {
			return e.who(tables), nil
		}
	}
	return "", nil
}
