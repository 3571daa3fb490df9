// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/internal/proxiers/nft"
	"github.com/viplab/viplab/proxiers/model"
)

// ledger is what the kernel is to hold for a state, and for whom: the same part may be needed by several Services, and
// several Services may want the same frontend.
type ledger struct {
	state     *model.State
	renderer  renderer
	fragments map[*model.Service]*fragment
	// claims are those to each frontend. A ClusterIP ranks before an address that a user wrote into a Service.
	claims kit.Ledger[frontend, *claim]

	containers *tally[container]
	chains     *tally[chain]
	elements   *tally[nft.Element]
}

func newLedger(r renderer) *ledger {
	return &ledger{
		renderer: r, fragments: map[*model.Service]*fragment{}, claims: kit.Ledger[frontend, *claim]{},
		containers: newTally[container](), chains: newTally[chain](), elements: newTally[nft.Element](),
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
			l.claim(c, l.claims.Drop)
		}
	}
	for _, s := range won {
		f := r.render(s)
		l.fragments[s] = f
		l.need(f.own, +1)
		for _, c := range f.claims {
			l.claim(c, l.claims.Add)
		}
	}
	gone.containers, come.containers = l.containers.changes()
	gone.chains, come.chains = l.chains.changes()
	gone.elements, come.elements = l.elements.changes()
	return gone, come
}

// claim adds or drops a claim. Where that gives the frontend to another claim, its parts change.
func (l *ledger) claim(c *claim, do func(frontend, kit.Claim[*claim])) {
	was, had := l.claims.Get(c.to)
	do(c.to, kit.Claim[*claim]{Rank: c.rank, By: c.by, Want: c})
	is, has := l.claims.Get(c.to)
	if was == is {
		return
	}
	if had {
		l.need(was.parts, -1)
	}
	if has {
		l.need(is.parts, +1)
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
