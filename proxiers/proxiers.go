// SPDX-License-Identifier: Apache-2.0

// Package proxiers lists the built-in proxiers and enforcers of NetworkPolicy.
package proxiers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/proxiers/iptables"
	"github.com/viplab/viplab/proxiers/ipvs"
	"github.com/viplab/viplab/proxiers/nftables"
	"github.com/viplab/viplab/proxiers/none"
	"github.com/viplab/viplab/proxiers/policycalico"
	"github.com/viplab/viplab/proxiers/policynftables"
	"github.com/viplab/viplab/proxiers/userspace"
	"github.com/viplab/viplab/suite/spec"
)

// All returns the built-in proxiers in the order of the report's columns.
func All() []spec.Proxier {
	chains, table := iptables.New(iptables.NFT), nftables.New()
	kit.Pair(chains, table)
	return []spec.Proxier{
		chains, iptables.New(iptables.Legacy), table, userspace.New(), ipvs.New(),
		none.New(),
	}
}

// Enforcers returns the built-in enforcers of NetworkPolicy. A node runs at most one of them, beside its proxier.
func Enforcers() []spec.Proxier { return []spec.Proxier{policynftables.New(), policycalico.New()} }

// Names returns the names of the proxiers that All returns, in the same order.
func Names() []string {
	var names []string
	for _, p := range All() {
		names = append(names, p.Name())
	}
	return names
}

// Find returns the built-in proxiers with the given names. The error lists every unknown name.
func Find(names ...string) ([]spec.Proxier, error) {
	var found []spec.Proxier
	var unknown []string
	for _, name := range names {
		i := slices.IndexFunc(All(), func(p spec.Proxier) bool { return p.Name() == name })
		if i < 0 {
			unknown = append(unknown, fmt.Sprintf("%q", name))
			continue
		}
		found = append(found, All()[i])
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("unknown proxier %s: there are %s", strings.Join(unknown, ", "),
			strings.Join(Names(), ", "))
	}
	return found, nil
}
