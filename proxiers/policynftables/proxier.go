// SPDX-License-Identifier: Apache-2.0

// Package policynftables enforces NetworkPolicy with nftables, without a mark on any packet.
//
//	table inet network-policy
//
//	postrouting 80 -> egress    replies and this node pass; source @egress4, @egress6: goto egress-POD
//	postrouting 90 -> ingress   the same by destination,     @ingress4, @ingress6: goto ingress-POD
//	    egress-POD              jump to each policy that isolates the pod; log, count, drop
//	      -> egress-by-POLICY   accept, a line for each peer, protocol and list of ports
//
// To accept a packet ends one base chain, and the next one of the same hook still sees it: what the sender may send is
// not yet what the receiver may get, and no bit of the mark has to carry one verdict to the other. Pods that no policy
// isolates are in the maps, too, so that all other addresses of the node's pod range can be dropped: a pod is isolated
// before anybody has told of it.
//
// The hook sees every packet that reaches a pod of the node or leaves one for elsewhere: routed or bridged ones, and
// those that IPVS forwards, which never come by the forward hook. It is late enough for the destination to be that of
// the endpoint, whichever proxier has translated it, and early enough for the source to be that of the client, which
// becomes a node's at priority 100. Only a proxier that relays connections hides clients: those have the node's
// address.
//
// Who sends from an address that is not his is dropped first, and so are tunnels that pods make themselves: in the
// chain sources of this table where pods are routed, of a table of the bridge family where they share a bridge, as
// there only the bridge knows the port that a packet has come from.
//
// A change is one transaction for each table, a run of nft, and has the chains and elements that differ.
package policynftables

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/viplab/viplab/internal/proxiers/policy"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/suite/spec"
)

// New returns the enforcer.
func New() spec.Proxier {
	return policy.New(policy.Definition{
		Name:     "policy-nftables",
		Features: spec.Features(spec.NetworkPolicy, spec.PolicyDropLog),
		Probe:    probe,
		New: func(node spec.Node) (policy.Mechanism, error) {
			return openTables(node.Host.NS, node.Host.PodNetwork(), node.PodCIDRs)
		},
	})
}

// probe programs policies for both pod networks.
func probe(ctx context.Context, ns *netns.NS, _ string) error {
	addr := netip.MustParseAddr("192.0.2.1")
	ranges := []netip.Prefix{netip.PrefixFrom(addr, 24), netip.MustParsePrefix("2001:db8::/64")}
	for _, pods := range []lab.PodNetwork{lab.Bridge, lab.Routed} {
		t, err := openTables(ns, pods, ranges)
		if err != nil {
			return err
		}
		err = t.Program(ctx, policy.Sample(addr), policy.Ports{addr: "probe"})
		if err == nil {
			err = t.Remove(ctx)
		}
		if err != nil && ctx.Err() == nil {
			return &spec.UnusableError{
				Missing: "the expressions of nftables that policies are made of",
				Cure: fmt.Sprintf("take nft 1.0.6 or later and Linux 5.13 or later, with the modules that are asked for (%v)",
					err),
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
