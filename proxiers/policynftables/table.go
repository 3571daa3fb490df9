// SPDX-License-Identifier: Apache-2.0

package policynftables

import (
	"context"

	"sigs.k8s.io/knftables"

	"github.com/viplab/viplab/internal/proxiers/nft"
)

// table keeps a table of the kernel up to date.
type table struct {
	*nft.Table
	frame nft.Frame
	held  *nft.Parts // beside the frame; nil: unknown, so that the next change writes everything
}

// program makes the table hold these parts.
func (t *table) program(ctx context.Context, next *nft.Parts) error {
	held := t.held
	t.held = nil // until the kernel has accepted the change
	ways, err := t.ways(ctx, held, *next)
	if err == nil {
		err = t.RunAny(ctx, ways...)
	}
	if err == nil {
		t.held = next
	}
	return err
}

// ways returns the alternatives to make the table hold the parts. If it is unknown what the table holds, it is emptied
// and filled again. It is replaced only if the kernel rejects that, because another program made the table. Otherwise a
// packet could meet a rule of the old table that looks up a map which has just been deleted: the kernel selects a rule
// when the packet enters, but an element when the rule looks it up.
func (t *table) ways(ctx context.Context, held *nft.Parts,
	next nft.Parts) (ways [][]*knftables.Transaction, err error) {
	if held != nil {
		return [][]*knftables.Transaction{t.Change(nft.Diff(*held, next))}, nil
	}
	former, err := t.Holdings(ctx)
	if err != nil {
		return nil, err
	}
	if former != nil {
		ways = append(ways, t.Replace(&t.frame, former, next))
	}
	tx := t.Transaction()
	nft.Destroy(tx)
	t.frame.Write(tx, nft.Parts{}, next)
	return append(ways, []*knftables.Transaction{tx}), nil
}
