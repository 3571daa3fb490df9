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

	"github.com/viplab/viplab/internal/proxiers/policy"
	"github.com/viplab/viplab/suite/spec"
)

// New makes the enforcer.
func New() spec.Proxier { return proxier{} }

type proxier struct{}

func (proxier) Name() string { return "policy-nftables" }

func (proxier) Features() spec.FeatureSet {
	return spec.Features(spec.NetworkPolicy, spec.PolicyDropLog)
}

// Usable looks for nft, and tries in an empty namespace whether nft and the kernel take the rules.
func (proxier) Usable(ctx context.Context) error { return probe(ctx) }

func (proxier) Start(_ context.Context, node spec.Node) (spec.Instance, error) {
	t, err := openTables(node.Host.NS, node.Host.PodNetwork(), node.PodCIDRs)
	if err != nil {
		return nil, err
	}
	return policy.New(node, t), nil
}
