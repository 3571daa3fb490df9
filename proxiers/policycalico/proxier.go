// SPDX-License-Identifier: Apache-2.0

// Package policycalico enforces NetworkPolicy with iptables and IP sets, in the layout of Calico: chains for each pod's
// device, chains for each policy, and a profile for each namespace.
//
//	filter  FORWARD -> cali-FORWARD -> cali-from-wl-dispatch -> cali-fw-DEVICE   what the pod may send
//	                                -> cali-to-wl-dispatch   -> cali-tw-DEVICE   what it may receive
//	            cali-fw-DEVICE  replies pass; INVALID and tunnels are dropped
//	              -> cali-po-POLICY             of each policy that isolates the pod; then drop
//	              -> cali-pro-kns.NAMESPACE     a pod that none isolates: all is allowed
//	            cali-tw-DEVICE  the same with cali-pi-POLICY and cali-pri-kns.NAMESPACE
//	        FORWARD, last rule: accept what carries the mark 0x10000
//	        OUTPUT  -> cali-OUTPUT -> cali-from-ipvs, cali-to-wl-dispatch   packets that IPVS forwards
//	raw     PREROUTING -> cali-PREROUTING   drop sources whose replies would go elsewhere
//
// A policy's rule sets the mark 0x10000 and returns, because the chain of the other pod must still judge the packet.
// The mark 0x20000 means "continue with the next tier"; nothing here sets it.
//
// The jumps must be the first rules of the built-in chains, because a proxier may insert a rule before them that
// accepts its marked packets. The kernel reports such rules, and the enforcer moves its jumps to the front again. If
// another program insists on the first place, the enforcer logs its rule and yields the place for a minute at a time.
//
// Peers are IP sets, named by a hash of their contents, so a set never changes. A sync creates the new sets, writes the
// chains that differ in one transaction, and deletes unused sets.
package policycalico

import (
	"context"
	"log/slog"
	"net/netip"

	"github.com/viplab/viplab/internal/proxiers/policy"
	"github.com/viplab/viplab/internal/proxiers/xtables"
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

// probe programs sample policies of both families.
func probe(ctx context.Context, ns *netns.NS, dir string) error {
	for _, addr := range []string{"192.0.2.1", "2001:db8::1"} {
		a := netip.MustParseAddr(addr)
		f, err := newFamily(ns, dir, lab.FamilyOf(a), slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		err = f.Program(ctx, policy.Sample(a), policy.Ports{a: devices + "probe"})
		f.Release()
		if err != nil {
			return xtables.Unusable(ctx, err, "policies for IP"+f.ip.String())
		}
	}
	return nil
}

// place makes the mechanisms of a node whose pods have devices of their own there.
func place(node spec.Node) ([]policy.Mechanism, error) {
	if node.Host.PodNetwork() != lab.Routed {
		return nil, &spec.UnusableError{Missing: "pods that are routed, each by a device of its own",
			Cure: "build the lab with --pods routed"}
	}
	var all []policy.Mechanism
	for _, ip := range node.Families {
		f, err := newFamily(node.Host.NS, node.StateDir, ip, node.Log)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}
