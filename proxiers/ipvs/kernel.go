// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/viplab/viplab/internal/proxiers/ipset"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/observe"
)

// kernel is the kernel's state for one family of a namespace.
type kernel struct {
	ns       *netns.NS
	programs *xtables.Programs
	rules    rules
	sets     *sets
	servers  *servers
	device   *device
	delivery *delivery
	// generation is the ruleset's generation when all rules were last seen in place.
	generation uint32
}

// open opens the connections to the kernel. dir is a directory for a lock.
func open(ns *netns.NS, r rules, scheduler, dir string, log *slog.Logger) (*kernel, error) {
	programs, err := xtables.Find(ns, xtables.NFTables, r.family, dir)
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
		delivery: &delivery{ns: ns, family: r.family, mark: r.deliver},
	}, nil
}

func (k *kernel) close() error {
	k.servers.handle.Close()
	k.programs.Close()
	return k.sets.conn.Close()
}

// load reads the state of the kernel. It ignores virtual servers that no Service needs and that neither the sets nor
// the device attribute to an earlier instance: they belong to another program.
func (k *kernel) load(want *desired) error {
	if err := k.sets.load(); err != nil {
		return err
	}
	if err := k.device.load(); err != nil {
		return err
	}
	return k.servers.load(func(fr frontend) bool { return len(want.servers.Ledger[fr]) > 0 || k.listed(fr) })
}

// listed reports whether the sets or the device contain a frontend.
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

// writeRules writes all rules, and checks that they are in place.
func (k *kernel) writeRules(ctx context.Context) error {
	const tries = 3 // another program may be writing too
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
	return fmt.Errorf("the rules were written %d times, and removed each time", tries+1)
}

// rulesIntact reports whether all rules are in place; another program may have deleted some. It costs one message if no
// program has written rules since the last check.
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

// sampleIntact reports whether an address and a virtual server, any of all, are in place. It costs two messages, and
// finds that another program has deleted all of one kind, as "ipvsadm --clear" does.
func (k *kernel) sampleIntact() (bool, error) {
	for a := range k.device.have {
		if local, err := k.device.local(a); err != nil || !local {
			return false, err
		}
		break
	}
	if intact, err := k.delivery.intact(); err != nil || !intact {
		return false, err
	}
	for fr := range k.servers.have {
		return k.servers.handle.IsServicePresent(k.servers.service(fr, 0)), nil
	}
	return true, nil
}

// commit updates the touched things. It adds entries of sets first and removes them last, so that no packet reaches a
// virtual server before the rules know whether to masquerade or drop it. It adds an address after its virtual server,
// and removes it before.
func (k *kernel) commit(want *desired) error {
	var come, gone []member
	for m := range want.members.touched {
		if len(want.members.Ledger[m]) > 0 {
			come = append(come, m)
		} else {
			gone = append(gone, m)
		}
	}
	if err := k.sets.change(true, come); err != nil {
		return err
	}
	for fr := range want.servers.touched {
		if server, ok := want.servers.Get(fr); ok {
			if err := k.servers.set(fr, server); err != nil {
				return err
			}
		}
	}
	for a := range want.bound.touched {
		do := k.device.add
		if len(want.bound.Ledger[a]) == 0 {
			do = k.device.remove
		}
		if err := do(a); err != nil {
			return err
		}
	}
	if err := k.device.ready(); err != nil {
		return err
	}
	for fr := range want.servers.touched {
		if len(want.servers.Ledger[fr]) == 0 {
			if err := k.servers.remove(fr); err != nil {
				return err
			}
		}
	}
	clear(want.members.touched)
	clear(want.servers.touched)
	clear(want.bound.touched)
	return k.sets.change(false, gone)
}

// remove removes everything.
func (k *kernel) remove(ctx context.Context) error {
	nothing := newDesired()
	if err := k.load(nothing); err != nil {
		return err
	}
	nothing.touchAll(k)
	if err := k.commit(nothing); err != nil {
		return err
	}
	if err := k.rules.owned().Remove(ctx, k.programs); err != nil {
		return err
	}
	if err := k.delivery.remove(); err != nil {
		return err
	}
	return k.sets.destroy()
}

func (k *kernel) family() lab.Family { return k.rules.family }
