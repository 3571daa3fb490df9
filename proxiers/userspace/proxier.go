// SPDX-License-Identifier: Apache-2.0

// Package userspace serves Services with a proxy process in the node: the first mode that Kubernetes had. Rules bring a
// connection for a Service to a socket of the node. Behind the socket somebody accepts it, makes a connection of his
// own to an endpoint, and carries bytes between the two.
//
//	client                               node                                            endpoint
//	  |   SYN to 10.96.0.10:80             |                                                |
//	  |--------------------> nat table: DNAT to 169.254.118.1:40123                         |
//	  |                                 filter INPUT: it was redirected, so let it in       |
//	  |                                 relay of default/web listens on :40123              |
//	  |<------ connection 1 ------------>  accept   connect  <------ connection 2 --------->|
//	                                         splice(2), both ways
//
//	nat     PREROUTING -> KUBE-PORTALS-CONTAINER   virtual IPs, for pods and for hosts outside
//	        OUTPUT     -> KUBE-PORTALS-HOST        virtual IPs, for processes of the node
//	        PREROUTING -> KUBE-NODEPORT-CONTAINER  NodePorts, if the destination is the node itself
//	        OUTPUT     -> KUBE-NODEPORT-HOST
//	filter  INPUT, FORWARD, OUTPUT -> KUBE-PORTALS-REFUSED  what has no relay: refused, or dropped
//	        INPUT                  -> KUBE-PORTALS-INPUT    relays take what was redirected, and nothing else
//
// A port of a Service has up to two relays: one for all endpoints, and one for those of the node if a traffic policy is
// Local. Rules choose between them, as they see who asks. The relays of a node have an address of their own, on its
// loopback device. Packets are redirected to it from whatever device they come by, while REDIRECT drops those that come
// by one without an IPv4 address, such as the devices of routed pods; and one rule keeps strangers away from all
// relays.
//
// The process is viplab itself, which holds sockets in the network namespace of each node and has a goroutine wait at
// each. A socket belongs to its namespace whoever uses it, so packets cannot tell this from a process that was started
// in the node; it costs less, and ends with viplab whatever happens.
//
// What clients can tell from a mode whose translations are the kernel's:
//   - Endpoints see the node as their client.
//   - A connection is accepted before there is one to an endpoint. If one endpoint does not answer, the next one is tried;
//     if none does, the client's connection is reset.
//   - Endpoints take turns: each of them once in a round, the order within a round being random. A fixed order would give
//     two clients that connect in turns one endpoint each, for ever.
//   - Relayed connections end with the proxy; its rules stay until it comes back, which takes up the same sockets.
//   - A NodePort is a bound socket, and another process that has bound the port before keeps it.
//   - Each connection costs two sockets, each open direction a pipe, and each service port a socket for ever.
package userspace

import (
	"context"

	"github.com/viplab/viplab/internal/proxiers/conntrack"
	"github.com/viplab/viplab/internal/proxiers/keeper"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/suite/spec"
)

// New makes the proxier.
func New() spec.Proxier { return proxier{} }

type proxier struct{}

func (proxier) Name() string { return "userspace" }

// Features leaves out
//   - SourceAddress and KernelNAT, because connections end in the proxy;
//   - RandomSpread, because endpoints take turns;
//   - OutlivesService, because the relay of a Service ends with it;
//   - UDPKeepsLast, because a relay forgets flows to whom it does not know;
//   - NodePortPrecedence, because the first to bind a NodePort has it;
//   - IPTables, because the chains are not those of the iptables mode.
//
// DropInvalid and ForwardAccept hold because nothing between a client and an endpoint is ever forwarded.
func (proxier) Features() spec.FeatureSet {
	return spec.Features(
		spec.Cleanup, spec.ClusterIP, spec.NodePort, spec.ExternalIPs, spec.LoadBalancer, spec.ETPLocal, spec.ITPLocal,
		spec.SessionAffinity, spec.Hairpin, spec.HealthCheckNodePort, spec.TerminatingFallback, spec.Topology,
		spec.NodePortAnyLocalAddress, spec.NodePortLocalhost, spec.ForwardAccept, spec.DropInvalid, spec.VirtualIP,
		spec.ConntrackCleanupUDP, spec.NodePortHeld, spec.UserspacePortals, spec.NodeHints, spec.DialsAgain,
		spec.ConntrackSparesOthers, spec.ConntrackFollowsFrontends, spec.UDPDrains, spec.ClusterIPFromOutside,
		spec.NoEndpointsRefused, spec.NoEndpointsRefusedOnNode, spec.SourceRanges, spec.HealthCheckBody,
		spec.AffinityTimeout, spec.AffinityManyClients,
		spec.HealthCheckAccept, spec.ExternalIPsGate, spec.ResolvesClashes, spec.ETPLocalShortcut, spec.LargeFromNode,
		spec.BridgedFragmentsV6,
	)
}

// Usable looks for the programs, and tries in an empty namespace whether the kernel has what the rules need.
func (proxier) Usable(ctx context.Context) error {
	for _, f := range []lab.Family{lab.V4, lab.V6} {
		if err := probe(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

func (proxier) Start(_ context.Context, node spec.Node) (spec.Instance, error) {
	in, err := newInstance(node)
	if err != nil {
		return nil, err
	}
	return in, nil
}

// instance is the proxier on one node.
type instance struct {
	*keeper.Keeper
	families []*family
}

func newInstance(node spec.Node) (*instance, error) {
	in := &instance{}
	var mechanisms []keeper.Mechanism
	for _, ip := range node.Families {
		f, err := newFamily(node, ip)
		if err != nil {
			return nil, err
		}
		in.families = append(in.families, f)
		mechanisms = append(mechanisms, f)
	}
	var err error
	if in.Keeper, err = keeper.New(node, keeper.Relayed, conntrack.Timeouts(), mechanisms); err != nil {
		return nil, err
	}
	for _, f := range in.families {
		f.portals.events = in.Events
	}
	return in, nil
}
