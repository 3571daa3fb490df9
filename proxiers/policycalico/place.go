package policycalico

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/watch"
	"github.com/viplab/viplab/proxiers/internal/xtables"
)

// entry is a jump from a built-in chain.
type entry struct {
	table    xtables.TableName
	from, to string
}

var entries = []entry{
	{xtables.Filter, "FORWARD", chainForward}, {xtables.Filter, "OUTPUT", chainOutput}, {raw, "PREROUTING", chainPrerouting},
}

// first says whether the jump is there once, and before all other rules.
func (e entry) first(tables map[xtables.TableName]*xtables.Saved) bool {
	return len(tables[e.table].Jumps(e.from, e.to)) == 1 && tables[e.table].Chains[e.from][0].Target() == e.to
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
	changes, err := watch.ChainChanges(ctx, f.ns, protocolOfTables(f.ip), chains...)
	if err != nil {
		cancel()
		return err
	}
	f.watching = cancel
	go func() {
		for range changes {
			_ = watch.Await(ctx, nil, f.reclaim) // it fails when the watch ends
		}
	}()
	return nil
}

func protocolOfTables(ip lab.Family) uint8 {
	if ip == lab.V6 {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

// release ends the watch.
func (f *family) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watching != nil {
		f.watching()
		f.watching = nil
	}
}

// reclaim puts the jumps back where they belong. Then everything is written, as whoever took them away may have taken more.
func (f *family) reclaim(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next == nil || ctx.Err() != nil {
		return nil // nothing is to be there any more
	}
	if f.held != nil {
		inPlace, err := f.inPlace(ctx)
		if inPlace || err != nil {
			return err
		}
		f.held = nil
	}
	err := f.write(ctx)
	if err != nil {
		f.log.Warn(fmt.Sprintf("keep the place of the chains for IP%s: %v", f.ip, err))
	}
	return err
}

// inPlace says whether all jumps are where they belong.
func (f *family) inPlace(ctx context.Context) (bool, error) {
	tables, err := f.programs.SaveAll(ctx)
	for _, e := range entries {
		if err != nil || !e.first(tables) {
			return false, err
		}
	}
	return true, nil
}
