// SPDX-License-Identifier: Apache-2.0

// Package userspace serves Services with a proxy process in the node, as the first mode of kube-proxy did. Rules
// redirect a connection for a Service to a socket of the node. A relay accepts the connection, opens another one to an
// endpoint, and copies bytes between the two.
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
// Local. Rules choose between them, because they see the client. The relays of a node have an address of their own on
// its loopback device. DNAT to that address works on every device, whereas REDIRECT drops packets from a device without
// an IPv4 address, such as those of routed pods. One rule keeps all other traffic away from the relays.
//
// The process is viplab itself: it holds sockets in the network namespace of each node. Packets cannot distinguish this
// from a process in the node.
//
// Clients can observe these differences from modes whose connections the kernel translates:
//   - Endpoints see the node as their client.
//   - A connection is accepted before there is one to an endpoint. If an endpoint does not answer, the relay tries the
//     next one; if none does, it resets the client's connection.
//   - Endpoints are used in rotation, in random order within a round. With a fixed order, two clients that connect
//     alternately would get one endpoint each, forever.
//   - Relayed connections end with the proxy. Its rules stay until it restarts, and it then binds the same sockets.
//   - A NodePort is a bound socket. If another process has bound the port before, that process keeps it.
//   - Each connection costs two sockets and two pipes, and each Service port a permanent socket.
package userspace

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/suite/spec"
)

// New returns the proxier.
func New() spec.Proxier { return kit.New(definition) }

// definition lacks what only translation in the kernel provides:
//   - SourceAddress and KernelNAT, because connections end in the proxy;
//   - RandomSpread, because endpoints are used in rotation;
//   - InKernel, because relays end with the process, and the first process to bind a NodePort keeps it;
//   - SCTP, because it relays TCP and UDP;
//   - IPTables, because the chains are not those of the iptables mode.
//
// It has DropInvalid and OpensFirewall because no packet between a client and an endpoint is ever forwarded.
var definition = kit.Definition{
	Name: "userspace",
	Features: spec.Core().With(
		spec.Relays, spec.NodePortAnyLocalAddress, spec.NodePortLocalhost, spec.OpensFirewall, spec.DropInvalid,
		spec.VirtualIP, spec.UDPDrains,
	).Without(spec.SourceAddress, spec.SCTP),
	Relays: true,
	Probe:  probe,
	New:    func(_ context.Context, site kit.Site) (kit.Mechanism, error) { return newFamily(site) },
}

func probe(ctx context.Context, ns *netns.NS, dir string, f lab.Family) error {
	programs, err := xtables.Find(ns, xtables.NFTables, f, dir)
	if err != nil {
		return err
	}
	defer programs.Close()
	err = programs.Restore(ctx, sample(f).Transactions(xtables.NFTables)...)
	return xtables.Unusable(ctx, err, fmt.Sprintf("portal rules for IP%s", f))
}

// sample returns the first sync of a node whose only Service uses every match and target.
func sample(f lab.Family) *xtables.Change {
	port, pods := kit.Sample(f)
	way := netip.AddrPortFrom(relayAddrs[f], 40000)
	rules := &xtables.Fragment{}
	(&renderer{nodePods: pods}).port(rules, port, ways{way, way}, claimsOf(port, nil, f))
	return layout(f, false).Rebuild([]*xtables.Fragment{rules}, nil, entries)
}
