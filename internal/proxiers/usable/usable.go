// SPDX-License-Identifier: Apache-2.0

// Package usable is how proxiers find out whether they can run on this machine: by doing in an empty namespace what
// they would do on a node, once.
package usable

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/viplab/viplab/internal/lab/kernel"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/suite/spec"
)

// Memory remembers what was tried with success: that does not change while a program runs. The zero value remembers
// nothing. It is safe for concurrent use.
type Memory[K comparable, V any] struct {
	mu   sync.Mutex
	done map[K]V
}

// Try returns what a former try came to, or tries. A failure is not remembered: somebody may mend it.
func (m *Memory[K, V]) Try(k K, try func() (V, error)) (V, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v, ok := m.done[k]; ok {
		return v, nil
	}
	v, err := try()
	if err != nil {
		return v, err
	}
	if m.done == nil {
		m.done = map[K]V{}
	}
	m.done[k] = v
	return v, nil
}

// InEmptyNamespace does something where there is nothing, with a folder for its files. Both are gone afterwards.
func InEmptyNamespace(do func(ns *netns.NS, dir string) error) (err error) {
	ns, err := netns.New("probe")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ns.Close()) }()
	dir, err := sandbox.TempDir("probe-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return do(ns, dir)
}

// Explain makes a *spec.UnusableError of a missing program of iptables, and leaves other errors as they are.
func Explain(err error) error {
	var missing *xtables.MissingError
	if errors.As(err, &missing) {
		return &spec.UnusableError{Missing: "the program " + missing.Program, Cure: "apt-get install iptables"}
	}
	return err
}

// Kernel tries features of the kernel. The error, a *spec.UnusableError, names the first that is lacking.
func Kernel(ctx context.Context, features ...kernel.Feature) error {
	for _, p := range kernel.Probes() {
		for _, f := range features {
			if p.Feature != f {
				continue
			}
			if found := p.Run(ctx); found.Status == kernel.Lacks {
				return &spec.UnusableError{
					Missing: "the kernel module " + found.Module,
					Cure:    fmt.Sprintf("modprobe %s, or use a kernel that has it (scripts/vm)", found.Module),
				}
			}
		}
	}
	return nil
}
