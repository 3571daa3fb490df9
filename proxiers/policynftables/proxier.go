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
// To accept a packet ends only the current base chain; the next base chain of the same hook still sees the packet. So
// egress and ingress are judged independently, without a mark. Pods that no policy isolates are in the maps too, and
// all other addresses of the node's pod range are dropped: so a new pod is isolated until the enforcer knows of it.
//
// The hook sees every packet that reaches or leaves a pod of the node: routed, bridged, or forwarded by IPVS. There the
// destination is already the endpoint's, and the source is still the client's, because masquerading happens at priority
// 100. Only a proxier that relays connections hides clients behind the node's address.
//
// The chain sources first drops packets with a forged source address, and IP in IP of pods. It is in this table if pods
// are routed, and in a table of the bridge family if they share a bridge, because only the bridge knows the port that a
// packet came from. The chain tunnels drops VXLAN packets of pods.
//
// A change is one transaction for each table, and contains only the chains and elements that differ.
package policynftables

import (
	"context"
	"net/netip"

	"github.com/viplab/viplab/internal/proxiers/nft"
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
		New: func(node spec.Node) ([]policy.Mechanism, error) {
			t, err := openTables(node.Host.NS, node.Host.PodNetwork(), node.PodCIDRs)
			return []policy.Mechanism{t}, err
		},
	})
}

// probe programs sample policies for both kinds of pod network.
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
		if err != nil {
			return nft.Unusable(ctx, err, "policies")
		}
	}
	return nil
}
