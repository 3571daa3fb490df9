// SPDX-License-Identifier: Apache-2.0

package policycalico

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/viplab/viplab/internal/proxiers/nodeaddr"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab/observe"
)

// entries are the jumps to the chains.
var entries = []xtables.Entry{
	xtables.NewEntry(xtables.Filter, "FORWARD", chainForward, "cali:"+hash(16, chainForward)),
	xtables.NewEntry(xtables.Filter, "OUTPUT", chainOutput, "cali:"+hash(16, chainOutput)),
	xtables.NewEntry(raw, "PREROUTING", chainPrerouting, "cali:"+hash(16, chainPrerouting)),
}

// inFront reports whether the jump exists once, before all other rules.
func inFront(e xtables.Entry, tables xtables.Tables) bool {
	return len(tables.Of(e.Table).Jumps(e.From, e.To)) == 1 && tables.Of(e.Table).Chains[e.From][0].Target() == e.To
}

// Another program that insists on the first place moves back after each move of this one. After mostMoves moves, each
// within rest of the one before, the enforcer leaves the place to that program for a truce.
const (
	mostMoves = 20
	rest      = 10 * time.Second
	truce     = time.Minute
)

// watch starts to watch the place of the jumps, until Release.
func (f *family) watch() error {
	if f.stop != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	var chains []string
	for _, e := range entries {
		chains = append(chains, e.From)
	}
	changes, err := observe.ChainChanges(ctx, f.ns, uint8(nodeaddr.Domain(f.ip)), chains...)
	if err != nil {
		cancel()
		return err
	}
	var watching sync.WaitGroup
	watching.Go(func() { f.keepPlace(ctx, changes) })
	f.stop = func() {
		cancel()
		watching.Wait()
	}
	return nil
}

// Release implements policy.Mechanism. It returns when the watch has ended.
func (f *family) Release() {
	defer f.programs.Close()
	f.mu.Lock()
	stop := f.stop
	f.stop = nil
	f.mu.Unlock() // the watch may need the lock once more
	if stop != nil {
		stop()
	}
}

// keepPlace takes the place back whenever another program has taken it.
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
		f.log.Error(fmt.Sprintf("IP%s: another program insists on the place that the chains of policies need: "+
			"for the %dth time in a row, %s; what that accepts is not judged; the place is left to it for %s; "+
			"let that program append its rule, or insert it once", f.ip, moves, other, f.truce))
		moves = 0
		select {
		case <-ctx.Done():
		case <-time.After(f.truce):
		}
	}
}

// reclaim puts the jumps back, and describes what was in their place, "" if they were there. It writes everything,
// because a program that removed the jumps may have removed more.
func (f *family) reclaim(ctx context.Context) (other string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next == nil || ctx.Err() != nil {
		return "", nil // the enforcer has ended
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

// displaced describes what is in the place of the first jump that is not in front. It returns "" if all are.
func (f *family) displaced(ctx context.Context) (string, error) {
	tables, err := f.programs.Save(ctx)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		rules := tables.Of(e.Table).Chains[e.From]
		switch {
		case inFront(e, tables):
		case len(rules) == 0:
			return fmt.Sprintf("%s %s is empty", e.Table, e.From), nil
		default:
			return fmt.Sprintf("%s %s begins with %q", e.Table, e.From, rules[0]), nil
		}
	}
	return "", nil
}
