// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"context"
	"errors"
	"sync"

	"github.com/viplab/viplab/suite/spec"
)

// Pool is a number of benches that are alike, and work at the same time.
type Pool []*Bench

// NewPool builds it.
func NewPool(ctx context.Context, size int, enforcer spec.Proxier, o Options) (Pool, error) {
	p, errs := make(Pool, size), make([]error, size)
	var all sync.WaitGroup
	for i := range p {
		all.Go(func() { p[i], errs[i] = NewBench(ctx, enforcer, o) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, p.Close(context.WithoutCancel(ctx)))
	}
	return p, nil
}

// Each does n pieces of work, by number from 0, each on the bench that is free first. It begins no more after an error.
func (p Pool) Each(n int, do func(i int, b *Bench) error) error {
	var (
		mu     sync.Mutex
		next   int
		failed error
		all    sync.WaitGroup
	)
	take := func(err error) (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		failed = errors.Join(failed, err)
		i := next
		next++
		return i, i < n && failed == nil
	}
	for _, b := range p {
		all.Go(func() {
			for i, more := take(nil); more; {
				i, more = take(do(i, b))
			}
		})
	}
	all.Wait()
	return failed
}

// Close takes all benches down.
func (p Pool) Close(ctx context.Context) error {
	errs := make([]error, len(p))
	var all sync.WaitGroup
	for i, b := range p {
		if b != nil {
			all.Go(func() { errs[i] = b.Close(ctx) })
		}
	}
	all.Wait()
	return errors.Join(errs...)
}
