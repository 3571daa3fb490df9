// SPDX-License-Identifier: Apache-2.0

package policycalico

import (
	"context"
	"errors"
	"log/slog"
	"maps"
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

// raw is a table that only this enforcer uses.
const raw xtables.TableName = "raw"

// family is one IP family of a node.
type family struct {
	ns       *netns.NS
	ip       lab.Family
	programs *xtables.Programs

	mu sync.Mutex // guards the rest
	// held is what the kernel holds. Nil means unknown: the next change writes everything.
	held *desired
	// next is what the kernel must hold. Nil means that it is not known yet.
	next *desired
	// garbage are unused sets that the kernel does not release yet.
	garbage []string
	// stop ends the watch over the place of the jumps. Nil means that there is none.
	stop func()

	truce time.Duration // for which another program may keep the place
	log   *slog.Logger
}

func newFamily(ns *netns.NS, dir string, ip lab.Family, log *slog.Logger) (*family, error) {
	programs, err := xtables.Find(ns, xtables.NFTables, ip, dir)
	if err != nil {
		return nil, err
	}
	return &family{ns: ns, ip: ip, programs: programs, truce: truce, log: log}, nil
}

// Program implements policy.Mechanism. It adds sets first, then changes all rules at once, then removes unused sets.
func (f *family) Program(ctx context.Context, want *policy.State, ports policy.Ports) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = render(f.ip, want, ports)
	if err := f.watch(); err != nil {
		return err
	}
	return f.write(ctx)
}

// write makes the kernel hold next.
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
		unused := slices.DeleteFunc(old, func(name string) bool { return next.sets[name].Name != "" })
		if len(unused) > 0 {
			f.programs.Close() // frees them
		}
		return f.discard(sets, unused)
	})
}

// former returns the names of the existing sets, and the tables if it is unknown what they hold.
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

// discard removes sets. The kernel releases the set of a deleted rule a little later, so discard remembers those that
// are still in use.
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

// withSets runs do with a connection to the sets of the namespace.
func (f *family) withSets(do func(*ipset.Conn) error) error {
	sets, err := ipset.Dial(f.ns)
	if err != nil {
		return err
	}
	return errors.Join(do(sets), sets.Close())
}

// equal reports whether two states have the same rules, and so the same sets, whose names depend on their contents.
func (d *desired) equal(o *desired) bool {
	return slices.EqualFunc(d.chains, o.chains, func(a, b *chain) bool {
		return a.Name == b.Name && slices.Equal(a.Rules, b.Rules)
	})
}

// ours reports whether a chain belongs to this enforcer, from this or any earlier instance.
func ours(chain string) bool { return strings.HasPrefix(chain, chains) }
