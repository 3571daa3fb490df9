// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/viplab/viplab/internal/proxiers/usable"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/suite/spec"
)

// probes remembers the families that work.
var probes usable.Memory[lab.Family, struct{}]

// probe finds out whether the kernel and the programs can take our rules, by giving them some in an empty namespace.
func probe(ctx context.Context, f lab.Family) error {
	_, err := probes.Try(f, func() (struct{}, error) {
		return struct{}{}, usable.Explain(usable.InEmptyNamespace(func(ns *netns.NS,
			dir string) error {
			return try(ctx, f, ns, dir)
		}))
	})
	return err
}

func try(ctx context.Context, f lab.Family, ns *netns.NS, dir string) error {
	programs, err := xtables.Find(ns, xtables.NFTables, f, filepath.Join(dir, "xtables.lock"))
	if err != nil {
		return err
	}
	err = programs.Restore(ctx, sample(f).transactions()...)
	if err == nil || ctx.Err() != nil {
		return err
	}
	return &spec.UnusableError{
		Missing: fmt.Sprintf("the iptables matches and targets of the portal rules for IP%s", f),
		Cure:    fmt.Sprintf("load the kernel modules that the program asks for (%v)", err),
	}
}

// sample is the first sync of a node whose only Service uses every match and target there is.
func sample(f lab.Family) *change {
	port, pods := usable.Sample(f)
	way := netip.AddrPortFrom(relayAddrs[f], 40000)
	var rules fragment
	(&renderer{podRange: pods}).port(&rules, port, ways{way, way}, claimsOf(port, nil, f))
	all := [chains][]xtables.Rule(rules)
	for ch := range chains {
		all[ch] = append(ch.fixed(f, relayAddrs[f], false), all[ch]...)
	}
	return rebuild(&all, tables{&xtables.Saved{}, &xtables.Saved{}})
}
