// SPDX-License-Identifier: Apache-2.0

// Package faults breaks proxiers on purpose. A conformance suite that passes says something about a proxier only if it
// would have failed on a broken one; a fault is such a break, as a value, and names the scenarios that must notice it.
//
// A fault acts on what a proxier is told, on what it writes, or on the node beside it, never on its code. So the same
// fault goes into a built-in proxier and into any program that is started from outside:
//
//	Config what an administrator has set
//	State  what it is told of the cluster, through Apply or the Kubernetes API
//	Text   what it writes to the programs iptables-restore, nft and ipset
//	Node   what becomes of a node after it has obeyed
//	Kernel what it asks of the kernel without a program, for built-in proxiers alone
package faults

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/viplab/viplab/internal/proxiers/keeper"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/suite/spec"
)

// Fault is one way to be broken.
type Fault struct {
	// Name is how commands call it: lower case words with dashes.
	Name string
	// Breaks says in a sentence what is broken.
	Breaks string
	// On are the names of the proxiers that it is meant for. None means all.
	On []string
	// Scenarios are the ids of the scenarios each of which must fail with it, on every proxier that declares what they need.
	Scenarios []string

	// Config changes what an administrator has set.
	Config func(*spec.ProxyConfig)
	// State makes the eyes of the proxiers of one cluster: a function that returns the object itself, another one in its
	// place, or nil for none. It is asked once for each version of each object.
	State func() func(store.Object) store.Object
	// Text changes lines that the proxier writes.
	Text []Rewrite
	// Node does something to a node each time that the proxier has obeyed a state there.
	Node func(ctx context.Context, node spec.Node, obeyed *store.Snapshot) error
	// Kernel changes what built-in proxiers ask of the kernel themselves.
	Kernel keeper.Hooks
}

// All are all faults, in the order of reports.
func All() []Fault {
	return slices.Concat(told, written, besides, asked, served)
}

// Find is the fault of a name.
func Find(name string) (Fault, error) {
	all := slices.Concat(All(), Enforced)
	i := slices.IndexFunc(all, func(f Fault) bool { return f.Name == name })
	if i < 0 {
		return Fault{}, fmt.Errorf("unknown fault %q (viplab prove --list shows them)", name)
	}
	return all[i], nil
}

// Immunes are scenarios that judge nothing a proxier could break.
var Immunes = []Immune{
	{"base-external-to-pod-ip", "the host outside has no route to pods, so its packets end at the router, and no node " +
		"sees any"},
	{"clusterip-external-unrouted", "the host outside has no route to ClusterIPs, so its packets end at the router, " +
		"and no node sees any"},
	{"nodeport-allocation-rules", "it judges how the cluster gives out NodePorts, in which no proxier takes part " +
		"(lab/cluster/store tests it)"},
}

// Immune is a scenario that no fault of a proxier can make fail.
type Immune struct{ Row, Why string }

// For says whether the fault is meant for a proxier.
func (f Fault) For(proxier string) bool { return len(f.On) == 0 || slices.Contains(f.On, proxier) }

var namePattern = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// Validate says what is wrong with a fault as it is written.
func (f Fault) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("fault %q: %w", f.Name, fmt.Errorf(format, args...)))
	}
	if !namePattern.MatchString(f.Name) {
		wrong("a name is lower case words with dashes")
	}
	if !strings.HasSuffix(f.Breaks, ".") {
		wrong("what it breaks must be a sentence")
	}
	if len(f.Scenarios) == 0 {
		wrong("no scenario is named that must notice")
	}
	if f.State == nil && len(f.Text) == 0 && f.Node == nil && f.Config == nil && f.Kernel.Stale == nil &&
		f.Kernel.Health == nil {
		wrong("it does nothing")
	}
	for _, r := range f.Text {
		if _, err := r.pattern(); err != nil {
			wrong("%w", err)
		}
	}
	return errors.Join(errs...)
}
