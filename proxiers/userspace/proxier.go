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
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/suite/spec"
)

// New returns the proxier.
func New() spec.Proxier { return kit.New(definition) }

// definition has none of what the kernel's translations give
//   - SourceAddress and KernelNAT, because connections end in the proxy;
//   - RandomSpread, because endpoints take turns;
//   - OutlivesService, because the relay of a Service ends with it;
//   - UDPKeepsLast, because a relay drops flows to endpoints that it does not know;
//   - NodePortPrecedence, because the first to bind a NodePort has it;
//   - IPTables, because the chains are not those of the iptables mode.
//
// DropInvalid and ForwardAccept hold because nothing between a client and an endpoint is ever forwarded.
var definition = kit.Definition{
	Name: "userspace",
	Features: spec.Core().With(
		spec.UserspacePortals, spec.NodePortHeld, spec.DialsAgain, spec.NodePortAnyLocalAddress, spec.NodePortLocalhost,
		spec.NoEndpointsRefusedOnNode, spec.ForwardAccept, spec.DropInvalid, spec.HealthCheckAccept, spec.VirtualIP,
		spec.AffinityTimeout, spec.AffinityManyClients, spec.ConntrackSparesOthers, spec.ConntrackFollowsFrontends,
		spec.UDPDrains, spec.ResolvesClashes, spec.ETPLocalShortcut, spec.LargeFromNode, spec.BridgedFragmentsV6,
	),
	Relays: true,
	Probe:  probe,
	New:    func(_ context.Context, site kit.Site) (kit.Mechanism, error) { return newFamily(site) },
}

func probe(ctx context.Context, ns *netns.NS, dir string, f lab.Family) error {
	programs, err := xtables.Find(ns, xtables.NFTables, f, filepath.Join(dir, "xtables.lock"))
	if err != nil {
		return err
	}
	err = programs.Restore(ctx, sample(f).Transactions(xtables.NFTables)...)
	if err == nil || ctx.Err() != nil {
		return err
	}
	return &spec.UnusableError{
		Missing: fmt.Sprintf("the iptables matches and targets of the portal rules for IP%s", f),
		Cure:    fmt.Sprintf("load the kernel modules that the program asks for (%v)", err),
	}
}

// sample is the first sync of a node whose only Service uses every match and target there is.
func sample(f lab.Family) *xtables.Change {
	port, pods := kit.Sample(f)
	way := netip.AddrPortFrom(relayAddrs[f], 40000)
	var rules fragment
	(&renderer{podRange: pods}).port(&rules, port, ways{way, way}, claimsOf(port, nil, f))
	all := [chains][]xtables.Rule(rules)
	for ch := range chains {
		all[ch] = append(ch.fixed(f, relayAddrs[f], false), all[ch]...)
	}
	return rebuild(&all, nil)
}
