// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/viplab/viplab/suite/spec"
)

// Pool is a set of equal benches that work concurrently.
type Pool []*Bench

// NewPool builds the benches.
func NewPool(ctx context.Context, size int, enforcer spec.Proxier, o Options) (Pool, error) {
	p := make(Pool, size)
	err := concurrently(size, func(i int) (err error) { p[i], err = NewBench(ctx, enforcer, o); return err })
	if err != nil {
		return nil, errors.Join(err, p.Close(ctx))
	}
	return p, nil
}

// Each calls do for 0 to n-1, each time on a free bench. After an error it starts no more calls.
func (p Pool) Each(n int, do func(i int, b *Bench) error) error {
	var next atomic.Int64
	var failed atomic.Bool
	return concurrently(len(p), func(worker int) error {
		for i := int(next.Add(1)) - 1; i < n && !failed.Load(); i = int(next.Add(1)) - 1 {
			if err := do(i, p[worker]); err != nil {
				failed.Store(true)
				return err
			}
		}
		return nil
	})
}

// Close closes all benches. Once the context has ended, it kills the enforcers.
func (p Pool) Close(ctx context.Context) error {
	return concurrently(len(p), func(i int) error {
		if p[i] == nil {
			return nil
		}
		return p[i].Close(ctx)
	})
}
