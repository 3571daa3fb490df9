// SPDX-License-Identifier: Apache-2.0

package policycalico

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/viplab/viplab/internal/proxiers/ipset"
	"github.com/viplab/viplab/internal/proxiers/policy"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
)

// raw is a table that nobody else here uses.
const raw xtables.TableName = "raw"

// family is one IP family of a node.
type family struct {
	ns       *netns.NS
	ip       lab.Family
	programs *xtables.Programs

	mu sync.Mutex // of all that follows
	// held is what the kernel holds; nil means that this is not known, and that everything is to be written.
	held *desired
	// next is what it is to hold; nil if that has not been said yet.
	next *desired
	// garbage are sets that no rule looks at any more, which the kernel has not noticed yet.
	garbage []string
	// watching is the watch over the place of the jumps; nil if there is none.
	watching *task

	truce time.Duration // how long the place is left to somebody who insists on it
	log   *slog.Logger
}

func newFamily(ns *netns.NS, dir string, ip lab.Family, log *slog.Logger) (*family, error) {
	programs, err := xtables.Find(ns, xtables.NFTables, ip, filepath.Join(dir, "xtables-policy-"+ip.String()+".lock"))
	if err != nil {
		return nil, err
	}
	return &family{ns: ns, ip: ip, programs: programs, truce: truce, log: log}, nil
}

// program makes the kernel obey a state: sets first, then all rules at once, then the sets that are of no use any more.
func (f *family) program(ctx context.Context, want *policy.State, ports policy.Ports) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = render(f.ip, want, ports)
	if err := f.watch(); err != nil {
		return err
	}
	return f.write(ctx)
}

// write writes what the kernel lacks of next.
func (f *family) write(ctx context.Context) error {
	next, was := f.next, f.held
	if was != nil && was.equal(next) && len(f.garbage) == 0 {
		return nil
	}
	return f.withSets(func(sets *ipset.Conn) error {
		f.held = nil
		old, tables, err := f.former(ctx, sets, was)
		if err != nil {
			return err
		}
		for name, s := range next.sets {
			if was == nil || !slices.Contains(old, name) {
				if err := errors.Join(sets.Create(s.Set), sets.Add(s.Set, s.entries...)); err != nil {
					return err
				}
			}
		}
		if err := f.programs.Restore(ctx, change(was, next, tables)...); err != nil {
			return err
		}
		f.held = next
		return f.discard(sets, slices.DeleteFunc(old, func(name string) bool { _, stays := next.sets[name]; return stays }))
	})
}

// former is what there was: the names of sets, and, where that is not known, the tables.
func (f *family) former(ctx context.Context, sets *ipset.Conn, was *desired) ([]string, xtables.Tables, error) {
	if was != nil {
		return slices.Concat(slices.Collect(maps.Keys(was.sets)), f.garbage), nil, nil
	}
	names, err := sets.Names(setPrefix(f.ip))
	if err != nil {
		return nil, nil, err
	}
	tables, err := f.programs.Save(ctx)
	return names, tables, err
}

// discard takes sets away. The kernel lets go of a deleted rule in its own time, and of what it looks at with it: those
// sets are tried again next time.
func (f *family) discard(sets *ipset.Conn, names []string) error {
	f.garbage = nil
	for _, name := range names {
		switch err := sets.Destroy(ipset.Set{Name: name}); {
		case errors.Is(err, ipset.ErrInUse):
			f.garbage = append(f.garbage, name)
		case err != nil:
			return err
		}
	}
	return nil
}

// withSets does something with the sets of the namespace.
func (f *family) withSets(do func(*ipset.Conn) error) error {
	sets, err := ipset.Dial(f.ns)
	if err != nil {
		return err
	}
	return errors.Join(do(sets), sets.Close())
}

// equal says whether two mean the same rules; sets are named by what is in them.
func (d *desired) equal(o *desired) bool {
	return slices.EqualFunc(d.chains, o.chains, func(a, b *chain) bool {
		return a.name == b.name &&
			slices.Equal(a.rules, b.rules)
	})
}

// ours says whether a chain is one of this enforcer's, of whatever start.
func ours(chain string) bool { return strings.HasPrefix(chain, chains) }
