// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/viplab/viplab/internal/proxiers/ipset"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/observe"
)

// kernel is what a family of a namespace holds.
type kernel struct {
	ns       *netns.NS
	programs *xtables.Programs
	rules    rules
	sets     *sets
	servers  *servers
	device   *device
	// generation is that of the ruleset when our rules were seen to stand in it.
	generation uint32
}

// open opens the ways to the kernel. dir is a folder for a lock.
func open(ns *netns.NS, r rules, scheduler, dir string, log *slog.Logger) (*kernel, error) {
	programs, err := xtables.Find(ns, xtables.NFTables, r.family, filepath.Join(dir, "xtables-"+r.family.String()+".lock"))
	if err != nil {
		return nil, err
	}
	conn, err := ipset.Dial(ns)
	if err != nil {
		return nil, err
	}
	servers, err := newServers(ns, r.family, scheduler, log)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &kernel{
		ns: ns, programs: programs, rules: r, servers: servers,
		sets: &sets{family: r.family, conn: conn}, device: &device{ns: ns, family: r.family},
	}, nil
}

func (k *kernel) close() error {
	k.servers.close()
	return k.sets.conn.Close()
}

// load finds out what there is. Virtual servers that neither a Service wants nor the sets and the device tell to be of
// a former life are somebody else's.
func (k *kernel) load(want *desired) error {
	if err := k.sets.load(); err != nil {
		return err
	}
	if err := k.device.load(); err != nil {
		return err
	}
	return k.servers.load(func(fr frontend) bool { return len(want.servers[fr]) > 0 || k.listed(fr) })
}

// listed says whether the sets or the device tell of a frontend.
func (k *kernel) listed(fr frontend) bool {
	if k.device.have[fr.at.Addr()] {
		return true
	}
	vip := ipset.Entry{Addr: fr.at.Addr(), Proto: fr.proto, Port: fr.at.Port()}
	for _, id := range []setID{clusterIP, externalIP, externalIPLocal, loadBalancer} {
		if k.sets.have[member{id, vip}] {
			return true
		}
	}
	sets := nodePortSets[fr.proto]
	if sets.byAddress {
		return k.sets.have[member{sets.all, vip}]
	}
	return k.sets.have[member{sets.all, ipset.Entry{Port: fr.at.Port()}}]
}

// writeRules writes all rules, and sees that they stand.
func (k *kernel) writeRules(ctx context.Context) error {
	const tries = 3 // somebody else may be writing too
	for try := range tries + 1 {
		generation, err := observe.RulesetGeneration(k.ns)
		if err != nil {
			return err
		}
		saved, err := k.programs.Save(ctx)
		if err != nil {
			return err
		}
		if try > 0 && k.rules.intact(saved) {
			k.generation = generation
			return nil
		}
		if err := k.rules.program(ctx, k.programs, saved); err != nil {
			return err
		}
	}
	return fmt.Errorf("the rules have been written %d times, and were taken away each time", tries+1)
}

// rulesIntact reports whether the rules are there, which somebody else may have deleted. It costs one message where
// nobody has written any rule.
func (k *kernel) rulesIntact(ctx context.Context) (bool, error) {
	generation, err := observe.RulesetGeneration(k.ns)
	if err != nil || generation == k.generation {
		return err == nil, err
	}
	saved, err := k.programs.Save(ctx)
	if err != nil || !k.rules.intact(saved) {
		return false, err
	}
	k.generation = generation
	return true, nil
}

// commit makes the things that were touched what they shall be. Entries of sets come first and go last, so that no
// packet gets to a virtual server before it is known what to mask, and what to drop; an address comes after the virtual
// server that waits for its packets, and goes before it.
func (k *kernel) commit(want *desired, t *touched) error {
	var come, gone []member
	for m := range t.members {
		if len(want.members[m]) > 0 {
			come = append(come, m)
		} else {
			gone = append(gone, m)
		}
	}
	if err := k.sets.add(come); err != nil {
		return err
	}
	for fr := range t.servers {
		if server, ok := want.servers.Get(fr); ok {
			if err := k.servers.set(fr, server); err != nil {
				return err
			}
		}
	}
	for a := range t.bound {
		do := k.device.add
		if len(want.bound[a]) == 0 {
			do = k.device.remove
		}
		if err := do(a); err != nil {
			return err
		}
	}
	for fr := range t.servers {
		if len(want.servers[fr]) == 0 {
			if err := k.servers.remove(fr); err != nil {
				return err
			}
		}
	}
	return k.sets.remove(gone)
}

// remove takes everything away.
func (k *kernel) remove(ctx context.Context) error {
	nothing := newDesired()
	if err := k.load(nothing); err != nil {
		return err
	}
	if err := k.commit(nothing, nothing.everything(k)); err != nil {
		return err
	}
	if err := k.rules.owned().Remove(ctx, k.programs); err != nil {
		return err
	}
	return k.sets.destroy()
}

func (k *kernel) family() lab.Family { return k.rules.family }
