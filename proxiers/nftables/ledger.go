// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"cmp"
	"slices"

	"github.com/viplab/viplab/proxiers/model"
)

// ledger is what the kernel is to hold for a state, and for whom: the same part may be needed by several Services, and
// several Services may want the same frontend.
type ledger struct {
	state     *model.State
	renderer  renderer
	fragments map[*model.Service]*fragment
	// claims are those to each frontend. The first one has it; the others wait.
	claims map[frontend][]*claim

	containers *tally[container]
	chains     *tally[chain]
	elements   *tally[element]
}

func newLedger(r renderer) *ledger {
	return &ledger{
		renderer: r, fragments: map[*model.Service]*fragment{}, claims: map[frontend][]*claim{},
		containers: newTally[container](), chains: newTally[chain](), elements: newTally[element](),
	}
}

// update makes the ledger that of another state, and returns the parts in which the two differ. The work is in
// proportion to the Services that changed, unless the renderer did.
func (l *ledger) update(state *model.State, r renderer) (gone, come parts) {
	lost, won := model.Diff(l.state, state)
	if !r.equal(l.renderer) && l.state != nil {
		lost, won = l.state.Services, state.Services
	}
	l.state, l.renderer = state, r
	for _, s := range lost {
		f := l.fragments[s]
		delete(l.fragments, s)
		l.need(f.own, -1)
		for _, c := range f.claims {
			l.withdraw(c)
		}
	}
	for _, s := range won {
		f := r.render(s)
		l.fragments[s] = f
		l.need(f.own, +1)
		for _, c := range f.claims {
			l.file(c)
		}
	}
	gone.containers, come.containers = l.containers.changes()
	gone.chains, come.chains = l.chains.changes()
	gone.elements, come.elements = l.elements.changes()
	return gone, come
}

// file puts a claim in line. It takes the frontend from one that comes after it.
func (l *ledger) file(c *claim) {
	line := l.claims[c.to]
	i, _ := slices.BinarySearchFunc(line, c, (*claim).compare)
	if i == 0 {
		if len(line) > 0 {
			l.need(line[0].parts, -1)
		}
		l.need(c.parts, +1)
	}
	l.claims[c.to] = slices.Insert(line, i, c)
}

// withdraw takes a claim out of the line. The frontend passes to the next one.
func (l *ledger) withdraw(c *claim) {
	line := l.claims[c.to]
	i := slices.Index(line, c)
	if line = slices.Delete(line, i, i+1); i == 0 {
		l.need(c.parts, -1)
		if len(line) > 0 {
			l.need(line[0].parts, +1)
		}
	}
	if l.claims[c.to] = line; len(line) == 0 {
		delete(l.claims, c.to)
	}
}

func (l *ledger) need(p parts, n int) {
	for _, c := range p.containers {
		l.containers.change(c, n)
	}
	for _, c := range p.chains {
		l.chains.change(c, n)
	}
	for _, e := range p.elements {
		l.elements.change(e, n)
	}
}

// compare orders claims to one frontend: a ClusterIP comes before an address that somebody just wrote into a Service,
// and then the name decides, so that the outcome does not depend on who came first.
func (c *claim) compare(o *claim) int {
	if c.cluster != o.cluster {
		if c.cluster {
			return -1
		}
		return +1
	}
	return cmp.Compare(c.by, o.by)
}
