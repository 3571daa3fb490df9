// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/internal/proxiers/nft"
	"github.com/viplab/viplab/proxiers/model"
)

// ledger is what the kernel must hold for a state. Several Services may need the same part, and several may claim the
// same frontend.
type ledger struct {
	kit.Rendered[*fragment]
	renderer renderer
	// claims are those to each frontend. A ClusterIP ranks before an address that a user wrote into a Service.
	claims kit.Ledger[frontend, *claim]

	containers tally[nft.Container]
	chains     tally[nft.Chain]
	elements   tally[nft.Element]
}

func newLedger(r renderer) *ledger {
	return &ledger{renderer: r, claims: kit.Ledger[frontend, *claim]{}}
}

// update advances the ledger to another state, and returns the parts that change.
func (l *ledger) update(state *model.State, r renderer) (gone, come nft.Parts) {
	swaps := l.Advance(state, kit.AllIf(!r.equal(l.renderer)), r.render)
	l.renderer = r
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

// claim adds or drops a claim. If the frontend then belongs to another claim, its parts change.
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
