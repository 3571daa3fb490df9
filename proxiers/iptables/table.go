package iptables

import (
	"slices"

	"github.com/viplab/viplab/proxiers/internal/xtables"
	"github.com/viplab/viplab/proxiers/model"
)

// desired is all the rules of a node and family, by Service.
type desired struct {
	state     *model.State
	fragments map[*model.Service]*fragment
	// tail ends nat KUBE-SERVICES: the way to the NodePorts.
	tail []xtables.Rule
}

// shared are the rules of a shared chain.
func (d *desired) shared(c sharedChain) []xtables.Rule {
	var rules []xtables.Rule
	for _, s := range d.state.Services {
		rules = append(rules, d.fragments[s].shared[c]...)
	}
	if c == natServices {
		rules = append(rules, d.tail...)
	}
	return rules
}

// next is the state that follows d: fragments of Services that stayed the same are taken over.
func (d *desired) next(state *model.State, tail []xtables.Rule, r *renderer) (n *desired, gone, come []*fragment) {
	lost, won := model.Diff(d.state, state)
	n = &desired{state: state, tail: tail, fragments: make(map[*model.Service]*fragment, len(state.Services))}
	for _, s := range state.Services {
		n.fragments[s] = d.fragments[s]
	}
	for _, s := range won {
		n.fragments[s] = r.render(s)
		come = append(come, n.fragments[s])
	}
	for _, s := range lost {
		gone = append(gone, d.fragments[s])
	}
	return n, gone, come
}

// change is a step from one set of rules to another, in three transactions that leave no gap between them. A rule of
// the filter table only ever catches what the nat table does not translate. So new filter rules come first, and old ones
// go last: at every moment each packet of a Service is translated, or refused, as before or as after.
type change struct {
	before, nat, after xtables.Transaction
}

func newChange() *change {
	return &change{
		before: xtables.Transaction{Table: xtables.Filter},
		nat:    xtables.Transaction{Table: xtables.NAT},
		after:  xtables.Transaction{Table: xtables.Filter},
	}
}

func (c *change) all() []*xtables.Transaction {
	return []*xtables.Transaction{&c.before, &c.nat, &c.after}
}

// delta is the change from one set of fragments to another, where the rest stays.
func delta(d *desired, gone, come []*fragment, tailChanged bool) *change {
	c := newChange()
	c.ownChains(gone, come)
	for sc := range sharedChains {
		lost, won := contributions(gone, sc), contributions(come, sc)
		if slices.Equal(lost, won) && !(tailChanged && sc == natServices) {
			continue
		}
		c.sharedChain(sc, d.shared(sc), without(lost, won), len(without(won, lost)) > 0)
	}
	return c
}

// ownChains writes the chains of come that differ from those of gone, and deletes those that are in gone only.
func (c *change) ownChains(gone, come []*fragment) {
	old := map[string][]xtables.Rule{}
	for _, f := range gone {
		for _, ch := range f.chains {
			old[ch.name] = ch.rules
		}
	}
	for _, f := range come {
		for _, ch := range f.chains {
			rules, existed := old[ch.name]
			delete(old, ch.name)
			if !existed || !slices.Equal(rules, ch.rules) {
				c.nat.Write(ch.name, ch.rules)
			}
		}
	}
	for name := range old {
		c.nat.Delete(name)
	}
}

// sharedChain writes a shared chain. lost are the rules it had and shall not have any more; won says that it gets some
// it had not.
func (c *change) sharedChain(sc sharedChain, rules, lost []xtables.Rule, won bool) {
	if sc.table() == xtables.NAT {
		c.nat.Write(sc.name(), rules)
		return
	}
	if won {
		c.before.Write(sc.name(), slices.Concat(rules, lost))
	}
	if len(lost) > 0 {
		c.after.Write(sc.name(), rules)
	}
}

func contributions(fs []*fragment, sc sharedChain) []xtables.Rule {
	var out []xtables.Rule
	for _, f := range fs {
		out = append(out, f.shared[sc]...)
	}
	return out
}

// without is what a has and b has not.
func without(a, b []xtables.Rule) []xtables.Rule {
	in := map[xtables.Rule]bool{}
	for _, r := range b {
		in[r] = true
	}
	return slices.DeleteFunc(slices.Clone(a), func(r xtables.Rule) bool { return in[r] })
}

// rebuild is the change from whatever the kernel holds to d: all chains are written, those left over from a former start
// are deleted, and missing jumps are put in place.
func rebuild(d *desired, n *nodeRules, filter, nat *xtables.Saved) *change {
	c := newChange()
	for _, ch := range n.filterChains() {
		c.before.Write(ch.name, ch.rules)
	}
	for _, ch := range n.natChains() {
		c.nat.Write(ch.name, ch.rules)
	}
	for sc := range sharedChains {
		var lost []xtables.Rule
		if sc.table() == xtables.Filter {
			lost = filter.Chains[sc.name()]
		}
		c.sharedChain(sc, d.shared(sc), lost, true)
	}
	keep := map[string]bool{}
	for _, s := range d.state.Services {
		for _, ch := range d.fragments[s].chains {
			keep[ch.name] = true
			c.nat.Write(ch.name, ch.rules)
		}
	}
	for name := range nat.Chains {
		if perService(name) && !keep[name] {
			c.nat.Delete(name)
		}
	}
	for _, j := range slices.Backward(n.jumps()) {
		c.jump(j, filter, nat)
	}
	return c
}

// jump puts a jump at the head of its chain, unless it is in the chain already.
func (c *change) jump(j jump, filter, nat *xtables.Saved) {
	saved, tx := filter, &c.before
	if j.table == xtables.NAT {
		saved, tx = nat, &c.nat
	}
	if len(saved.Jumps(j.from, j.to)) == 0 {
		tx.Insert(j.from, j.rule)
	}
}

// removal takes everything of ours out of a table: the jumps, then the chains. A chain that somebody else jumps to is
// emptied only.
func removal(t xtables.TableName, saved *xtables.Saved) *xtables.Transaction {
	tx := &xtables.Transaction{Table: t}
	for name := range saved.Chains {
		if !ours(name) {
			continue
		}
		tx.Empty(name)
		foreign := false
		for from := range saved.Chains {
			if ours(from) {
				continue
			}
			for _, r := range saved.Jumps(from, name) {
				if builtIn(from) {
					tx.Remove(from, r)
				} else {
					foreign = true
				}
			}
		}
		if !foreign {
			tx.Delete(name)
		}
	}
	return tx
}

func builtIn(chain string) bool {
	switch chain {
	case "PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING":
		return true
	}
	return false
}
