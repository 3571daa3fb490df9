// SPDX-License-Identifier: Apache-2.0

package policycalico

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/viplab/viplab/internal/proxiers/policy"
)

// mechanism is that of all families of a node. They go their own ways: one that fails does not hold up the other.
type mechanism struct{ families []*family }

// Program implements policy.Mechanism.
func (m *mechanism) Program(ctx context.Context, want *policy.State, ports policy.Ports) error {
	return m.each(func(f *family) error { return f.program(ctx, want, ports) })
}

// Remove implements policy.Mechanism.
func (m *mechanism) Remove(ctx context.Context) error {
	return m.each(func(f *family) error { return f.remove(ctx) })
}

// each does something for all families at once.
func (m *mechanism) each(do func(*family) error) error {
	errs := make([]error, len(m.families))
	var all sync.WaitGroup
	for i, f := range m.families {
		all.Go(func() {
			if err := do(f); err != nil {
				errs[i] = fmt.Errorf("IP%s: %w", f.ip, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// Dump implements policy.Mechanism.
func (m *mechanism) Dump(ctx context.Context) ([]byte, error) {
	var all []byte
	for _, f := range m.families {
		text, err := f.dump(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, text...)
	}
	return all, nil
}

// Release implements policy.Mechanism.
func (m *mechanism) Release() {
	for _, f := range m.families {
		f.release()
	}
}
