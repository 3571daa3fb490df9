// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/viplab/viplab/internal/lab/kernel"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/suite/spec"
)

// probed are the names of the probes that succeeded. A success stays true while viplab runs.
var (
	probing sync.Mutex
	probed  = map[string]bool{}
)

// Probe runs try in an empty namespace, with a directory for its files, unless a probe of that name has succeeded. A
// failure is not remembered: the user may fix it.
func Probe(name string, try func(ns *netns.NS, dir string) error) error {
	probing.Lock()
	defer probing.Unlock()
	if probed[name] {
		return nil
	}
	err := inEmptyNamespace(try)
	probed[name] = err == nil
	return err
}

func inEmptyNamespace(try func(ns *netns.NS, dir string) error) (err error) {
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
	return try(ns, dir)
}

// NeedKernel returns a *spec.UnusableError that names the first feature that the kernel lacks, nil if it has all.
func NeedKernel(ctx context.Context, features ...kernel.Feature) error {
	for _, p := range kernel.Probes() {
		if !slices.Contains(features, p.Feature) {
			continue
		}
		if found := p.Run(ctx); found.Status == kernel.Lacks {
			return &spec.UnusableError{
				Missing: "the kernel module " + found.Module,
				Cure:    fmt.Sprintf("modprobe %s, or use a kernel that has it (scripts/vm)", found.Module),
			}
		}
	}
	return nil
}
