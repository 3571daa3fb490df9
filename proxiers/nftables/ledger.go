// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"net/netip"
	"slices"

	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/internal/proxiers/nft"
	"github.com/viplab/viplab/proxiers/model"
)

// ledger is what the kernel must hold for a state. Several Services may need the same part or claim the same frontend.
type ledger struct {
	kit.Rendered[*fragment]
	nodePorts []netip.Addr
	// claims are the claims to each frontend. A ClusterIP takes precedence over an address that a user wrote into a
	// Service.
	claims kit.Ledger[frontend, *claim]

	containers tally[nft.Container]
	chains     tally[nft.Chain]
	elements   tally[nft.Element]
}

func newLedger() *ledger {
	return &ledger{
		claims:     kit.Ledger[frontend, *claim]{},
		containers: newTally[nft.Container](), chains: newTally[nft.Chain](), elements: newTally[nft.Element](),
	}
}

// update advances the ledger to another state, and returns the parts that change.
func (l *ledger) update(state *model.State, r renderer) (gone, come nft.Parts) {
	swaps := l.Advance(state, kit.AllIf(!slices.Equal(r.nodePorts, l.nodePorts)), r.render)
	l.nodePorts = r.nodePorts
	for _, s := range swaps {
		l.add(s.Old, -1, l.claims.Drop)
		l.add(s.New, +1, l.claims.Add)
	}
	gone.Containers, come.Containers = l.containers.changes()
	gone.Chains, come.Chains = l.chains.changes()
	gone.Elements, come.Elements = l.elements.changes()
	return gone, come
}

// add adds or removes a fragment.
func (l *ledger) add(f *fragment, n int, do func(frontend, kit.Claim[*claim])) {
	if f == nil {
		return
	}
	l.need(f.own, n)
	for _, c := range f.claims {
		l.claim(c, do)
	}
}

// claim adds or drops a claim. If another claim then wins the frontend, the parts change.
func (l *ledger) claim(c *claim, do func(frontend, kit.Claim[*claim])) {
	was, had := l.claims.Get(c.to)
	do(c.to, kit.Claim[*claim]{Rank: c.rank, By: c.by, Want: c})
	is, has := l.claims.Get(c.to)
	if was == is {
		return
	}
	if had {
		l.need(was.Parts, -1)
	}
	if has {
		l.need(is.Parts, +1)
	}
}

// need adds n to the number of references to parts.
func (l *ledger) need(p nft.Parts, n int) {
	l.containers.change(p.Containers, n)
	l.chains.change(p.Chains, n)
	l.elements.change(p.Elements, n)
}

// tally counts references to things, and reports which things a series of changes added or removed.
type tally[T comparable] struct {
	count   map[T]int
	before  map[T]int // the counts of the touched things at the last call of changes
	touched []T       // in order
}

func newTally[T comparable]() tally[T] { return tally[T]{count: map[T]int{}, before: map[T]int{}} }

// change adds n, which may be negative, to the number of references to each thing.
func (t *tally[T]) change(things []T, n int) {
	for _, x := range things {
		if _, known := t.before[x]; !known {
			t.before[x] = t.count[x]
			t.touched = append(t.touched, x)
		}
		if t.count[x] += n; t.count[x] == 0 {
			delete(t.count, x)
		}
	}
}

// changes returns the things that lost all references since the last call, and those that got their first.
func (t *tally[T]) changes() (gone, come []T) {
	for _, x := range t.touched {
		switch was, is := t.before[x] > 0, t.count[x] > 0; {
		case was && !is:
			gone = append(gone, x)
		case is && !was:
			come = append(come, x)
		}
	}
	t.before, t.touched = map[T]int{}, nil
	return gone, come
}
