// SPDX-License-Identifier: Apache-2.0

// Package faults breaks proxiers on purpose. A pass of a conformance suite means something only if a broken proxier
// would have failed. A fault describes one way to be broken, and names the scenarios that must notice it.
//
// A fault changes the input of a proxier, its output, or the node beside it. So the same fault works in a built-in
// proxier and in any external program:
//
//	Config   the configuration
//	State    the cluster's state, as Apply or the Kubernetes API shows it
//	Text     the input of the programs iptables-restore, nft and ipset
//	Node     the node, after each successful Apply
//	Sabotage what built-in proxiers ask of the kernel without a program
package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/scenarios/catalogue"
	"github.com/viplab/viplab/suite/spec"
)

// Fault is one way for a proxier to be broken.
type Fault struct {
	// Name identifies the fault on the command line: lower case words with dashes.
	Name string
	// Description describes the fault in a sentence.
	Description string
	// Proxiers are the names of the proxiers that the fault applies to. None means all.
	Proxiers []string
	// Except are the names of proxiers that the fault does not apply to, because a known deviation of theirs undoes it.
	Except []string
	// Scenarios are the ids of the scenarios that must all fail with the fault, on every proxier that has their
	// features. For faults of proxiers, All sets it from the catalogue.
	Scenarios []string

	// BothFamilies faults apply to clusters with two IP families alone.
	BothFamilies bool

	// Config changes the administrator's settings.
	Config func(*spec.ProxyConfig)
	// State changes the state of the cluster that the proxier sees.
	State State
	// Text changes lines that the proxier writes.
	Text []Rewrite
	// Node changes a node after each successful Apply of the proxier there.
	Node func(ctx context.Context, node spec.Node, applied *store.Snapshot) error
	// Sabotage breaks the built-in proxiers' own calls of the kernel.
	Sabotage spec.Sabotage
	// Deaf keeps all changes from a built-in proxier once its watches have broken.
	Deaf bool

	// Ends means that the fault makes the proxier end by itself. Other faults must leave a proxier that works.
	Ends bool
}

// proxierFaults are the faults of proxiers, in the order of reports. The catalogue lists the scenarios that must notice
// them.
var proxierFaults = slices.Concat(stateFaults, ruleFaults, hostFaults, sabotageFaults, ipvsFaults)

// All returns the faults of proxiers, in the order of reports, with the scenarios that must notice them. It also
// returns, by scenario id, why no fault can make a scenario fail. Both come from the catalogue. The error lists each
// scenario whose row names an unknown fault, or has both faults and such a reason.
func All() (all []Fault, immune map[string]string, err error) {
	groups, err := catalogue.Groups()
	if err != nil {
		return nil, nil, err
	}
	return claimed(groups)
}

func claimed(groups []catalogue.Group) (all []Fault, immune map[string]string, err error) {
	all, immune = slices.Clone(proxierFaults), map[string]string{}
	var errs []error
	bad := func(id, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: scenario %s: "+format, append([]any{catalogue.File, id}, args...)...))
	}
	for _, g := range groups {
		for _, row := range g.Rows {
			parts := row.Parts()
			for _, id := range slices.Sorted(maps.Keys(parts)) {
				if why := parts[id].Immune; why != "" {
					immune[id] = why
					if len(parts[id].Faults) > 0 {
						bad(id, "it is immune, and has faults: remove one of them")
					}
				}
				for _, name := range parts[id].Faults {
					if i := slices.IndexFunc(all, named(name)); i >= 0 {
						all[i].Scenarios = append(all[i].Scenarios, id)
					} else {
						bad(id, "unknown fault %q (viplab prove --list shows them)", name)
					}
				}
			}
		}
	}
	return all, immune, errors.Join(errs...)
}

func named(name string) func(Fault) bool { return func(f Fault) bool { return f.Name == name } }

// Find returns the fault of a name. A fault of proxiers has no Scenarios set (see All).
func Find(name string) (Fault, error) {
	all := slices.Concat(proxierFaults, Enforced)
	i := slices.IndexFunc(all, named(name))
	if i < 0 {
		return Fault{}, fmt.Errorf("unknown fault %q (viplab prove --list shows them)", name)
	}
	return all[i], nil
}

// Names returns the names of the faults of proxiers.
func Names() []string {
	var names []string
	for _, f := range proxierFaults {
		names = append(names, f.Name)
	}
	return names
}

// For reports whether the fault applies to a proxier.
func (f Fault) For(proxier string) bool {
	return (len(f.Proxiers) == 0 || slices.Contains(f.Proxiers, proxier)) && !slices.Contains(f.Except, proxier)
}

// ForOutside reports whether the fault applies to a command of "viplab prove --exec". One that has the name of a
// built-in proxier is not that proxier: it has other code, and writes other rules.
func (f Fault) ForOutside(program string) bool {
	return f.For(program) && (len(f.Proxiers) == 0 || !slices.Contains(builtIn, program))
}

var namePattern = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// Validate returns an error if the fault is not well-formed.
func (f Fault) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("fault %q: %w", f.Name, fmt.Errorf(format, args...)))
	}
	if !namePattern.MatchString(f.Name) {
		wrong("a name is lower case words with dashes")
	}
	if !strings.HasSuffix(f.Description, ".") {
		wrong("the description must be a sentence")
	}
	if len(f.Scenarios) == 0 {
		wrong("no scenario is named that must notice")
	}
	if f.State == nil && len(f.Text) == 0 && f.Node == nil && f.Config == nil && f.Sabotage.KeepStaleFlows == nil &&
		f.Sabotage.CountEndpoints == nil && f.Sabotage.RemoveOnFailure == nil &&
		f.Sabotage.IgnoreFailures == nil && !f.Deaf {
		wrong("it does nothing")
	}
	for _, r := range f.Text {
		if _, err := r.pattern(); err != nil {
			wrong("%w", err)
		}
	}
	return errors.Join(errs...)
}
