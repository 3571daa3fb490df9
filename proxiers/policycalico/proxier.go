// SPDX-License-Identifier: Apache-2.0

// Package policycalico enforces NetworkPolicy with iptables and IP sets, in the shape that Calico has made known:
// chains for each pod's device, chains for each policy, and a profile for each namespace.
//
//	filter  FORWARD -> cali-FORWARD -> cali-from-wl-dispatch -> cali-fw-DEVICE   what the pod may send
//	                                -> cali-to-wl-dispatch   -> cali-tw-DEVICE   what it may get
//	            cali-fw-DEVICE  replies pass; INVALID and tunnels are dropped
//	              -> cali-po-POLICY             of each policy that isolates the pod; then drop
//	              -> cali-pro-kns.NAMESPACE     a pod that none isolates: all is allowed
//	            cali-tw-DEVICE  the same with cali-pi-POLICY and cali-pri-kns.NAMESPACE
//	        FORWARD, last rule: accept what carries the mark 0x10000
//	        OUTPUT  -> cali-OUTPUT -> cali-from-ipvs, cali-to-wl-dispatch   what IPVS forwards comes by here
//	raw     PREROUTING -> cali-PREROUTING   drop sources whose replies would go elsewhere
//
// A policy's rule sets the mark 0x10000 and returns; it does not accept, as the other side's chain has still to be
// asked. The mark 0x20000 stands for "go on with the next tier"; nothing here sets it.
//
// The jumps stand before everything else that the built-in chains have, and go back there when somebody puts a rule
// before them, as a proxier does that comes later: it accepts what it has marked, isolated pods or not. The kernel
// tells of such rules, and the jumps move in one transaction. Where another program insists on that place as well, it
// is left to that one for a minute at a time, and the log names its rule.
//
// Peers are sets, named by a hash of what is in them, so a set never changes: a sync makes the new sets, writes the
// chains that differ in one transaction of iptables-restore, and takes away the sets that nothing looks at any more.
package policycalico

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/viplab/viplab/internal/proxiers/policy"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/suite/spec"
)

// New returns the enforcer.
func New() spec.Proxier {
	return policy.New(policy.Definition{
		Name:     "policy-calico",
		Features: spec.Features(spec.NetworkPolicy, spec.PolicyDropLog, spec.CalicoChains),
		Probe:    probe,
		New:      place,
	})
}

// probe programs policies of both families.
func probe(ctx context.Context, ns *netns.NS, dir string) error {
	for _, addr := range []string{"192.0.2.1", "2001:db8::1"} {
		if err := try(ctx, ns, dir, netip.MustParseAddr(addr)); err != nil {
			return err
		}
	}
	return nil
}

func try(ctx context.Context, ns *netns.NS, dir string, a netip.Addr) error {
	f, err := newFamily(ns, dir, lab.FamilyOf(a), slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer f.release()
	err = f.program(ctx, policy.Sample(a), policy.Ports{a: devices + "probe"})
	if err == nil || ctx.Err() != nil {
		return err
	}
	return &spec.UnusableError{
		Missing: fmt.Sprintf("matches and targets that policies for IP%s are made of", f.ip),
		Cure:    fmt.Sprintf("load the kernel modules that the program asks for (%v)", err),
	}
}

// place makes the mechanism of a node whose pods have devices of their own there.
func place(node spec.Node) (policy.Mechanism, error) {
	if node.Host.PodNetwork() != lab.Routed {
		return nil, &spec.UnusableError{Missing: "pods that are routed, each by a device of its own",
			Cure: "build the lab with --pods routed"}
	}
	m := &mechanism{}
	for _, ip := range node.Families {
		f, err := newFamily(node.Host.NS, node.StateDir, ip, node.Log)
		if err != nil {
			return nil, err
		}
		m.families = append(m.families, f)
	}
	return m, nil
}
