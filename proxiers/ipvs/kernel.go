// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/viplab/viplab/internal/proxiers/dnat"
	"github.com/viplab/viplab/internal/proxiers/ipset"
	"github.com/viplab/viplab/internal/proxiers/kit"
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
	clients  *dnat.Clients
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
	clients, err := dnat.OpenClients(ns, r.family)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	servers, err := newServers(ns, r.family, scheduler, log)
	if err != nil {
		return nil, errors.Join(err, conn.Close(), clients.Close())
	}
	return &kernel{
		ns: ns, programs: programs, rules: r, clients: clients, servers: servers,
		sets: &sets{family: r.family, conn: conn}, device: &device{ns: ns, family: r.family},
		delivery: &delivery{ns: ns, family: r.family, mark: r.deliver},
	}, nil
}

func (k *kernel) close() error {
	k.servers.handle.Close()
	k.programs.Close()
	return errors.Join(k.clients.Close(), k.sets.conn.Close())
}

// load reads the state of the kernel. It ignores virtual servers that no Service needs and that neither the sets nor
// the device attribute to an earlier instance: they belong to another program.
func (k *kernel) load(want *desired) error {
	if err := k.sets.load(); err != nil {
		return err
	}
	if err := k.clients.Load(); err != nil {
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
	for _, id := range []setID{clusterIP, externalIP, loadBalancer} {
		if k.sets.have[member{id, vip}] {
			return true
		}
	}
	set := nodePortSets[fr.proto]
	if set.byAddress {
		return k.sets.have[member{set.id, vip}]
	}
	return k.sets.have[member{set.id, ipset.Entry{Port: fr.at.Port()}}]
}

// writeRules writes all rules, and checks that they are in place.
func (k *kernel) writeRules(ctx context.Context, translations []*xtables.Fragment) error {
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
		if try > 0 && k.rules.intact(saved, translations) {
			k.generation = generation
			return nil
		}
		if err := k.programs.Restore(ctx, k.rules.program(saved, translations)...); err != nil {
			return err
		}
	}
	return fmt.Errorf("the rules were written %d times, and removed each time", tries+1)
}

// rulesIntact reports whether all rules are in place; another program may have deleted some. It costs one message if no
// program has written rules since the last check.
func (k *kernel) rulesIntact(ctx context.Context, want *desired) (bool, error) {
	generation, err := observe.RulesetGeneration(k.ns)
	if err != nil || generation == k.generation {
		return err == nil, err
	}
	saved, err := k.programs.Save(ctx)
	if err != nil || !k.rules.intact(saved, want.allTranslations()) {
		return false, err
	}
	k.generation = generation
	return true, nil
}

// sampleIntact reports whether the device, an address and a virtual server, any of all, are in place. It costs a few
// messages, and finds that another program has deleted all of one kind, as "ipvsadm --clear" does.
func (k *kernel) sampleIntact() (bool, error) {
	for a := range k.device.have {
		if intact, err := k.device.intact(a); err != nil || !intact {
			return false, err
		}
		break
	}
	if intact, err := k.delivery.intact(); err != nil || !intact {
		return false, err
	}
	for fr := range k.servers.have {
		return k.servers.handle.IsServicePresent(k.servers.service(fr)), nil
	}
	return true, nil
}

// translate changes the rules of translations. Each transaction adds one to the ruleset's generation. If the generation
// has grown by more, another program has written rules in between, and the next change checks all of them.
func (k *kernel) translate(ctx context.Context, changes []kit.Swap[*xtables.Fragment]) error {
	all := slices.DeleteFunc(translationLayout.Delta(changes).Transactions(xtables.NFTables),
		(*xtables.Transaction).IsEmpty)
	if len(all) == 0 {
		return nil
	}
	if err := k.programs.Restore(ctx, all...); err != nil {
		return err
	}
	generation, err := observe.RulesetGeneration(k.ns)
	if err == nil && generation == k.generation+uint32(len(all)) {
		k.generation = generation
	}
	return err
}

// commit updates the touched things. It adds entries of sets first and removes them last, so that no packet reaches a
// virtual server before the rules know whether to masquerade or drop it. It adds an address after its virtual server,
// and removes it before. Backends come before the translations of a port end, and leave after they have begun.
func (k *kernel) commit(ctx context.Context, want *desired) error {
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
	if err := k.translate(ctx, want.translations); err != nil {
		return err
	}
	for fr := range want.servers.touched {
		var err error
		if server, ok := want.servers.Get(fr); ok {
			err = k.servers.retire(fr, server)
		} else {
			err = k.servers.remove(fr)
		}
		if err != nil {
			return err
		}
	}
	want.translations = nil
	clear(want.members.touched)
	clear(want.servers.touched)
	clear(want.bound.touched)
	return k.sets.change(false, gone)
}

// remove removes everything.
func (k *kernel) remove(ctx context.Context) error {
	nothing := newDesired(translator{})
	if err := k.load(nothing); err != nil {
		return err
	}
	nothing.touchAll(k)
	if err := k.commit(ctx, nothing); err != nil {
		return err
	}
	if err := k.rules.owned().Remove(ctx, k.programs); err != nil {
		return err
	}
	if err := k.delivery.remove(); err != nil {
		return err
	}
	return errors.Join(k.clients.Remove(ctx), k.sets.destroy(ctx))
}

func (k *kernel) family() lab.Family { return k.rules.family }
