// SPDX-License-Identifier: Apache-2.0

// Package ipvs serves Services with IPVS, the kernel's own load balancer. Each address and port of a Service is a
// virtual server, each endpoint behind it a destination; a scheduler of the kernel picks one for each connection.
//
//	                  mangle INPUT          filter INPUT        IPVS (LOCAL_IN, 99)
//	                  KUBE-PROXY-FIREWALL   KUBE-IPVS-FILTER    destination rewritten
//	packet to a       what must not be      what is no port     +-------------------+
//	Service -> nat -> served is dropped --> of a Service is --> | virtual servers   | --> OUTPUT, POSTROUTING -> endpoint
//	KUBE-SERVICES                           refused             | 10.96.0.10:80     |     KUBE-POSTROUTING:
//	marks what is     (of the node itself:                      |  -> 10.244.1.5:80 |     masquerade what is marked
//	to be masqueraded  mangle OUTPUT, then IPVS (LOCAL_OUT)     |  -> 10.244.2.7:80 |
//	                                                            +-------------------+
//	reply -> FORWARD: KUBE-FORWARD lets it pass, IPVS (100) rewrites its source
//
// For the kernel to take packets to a Service for its own, the addresses of all Services are on the device kube-ipvs0.
// NodePorts are virtual servers on the node's own addresses.
//
// The number of iptables rules is constant. They look at IP sets, which hold the frontends by what is to be done with
// them: masquerade always (KUBE-NODE-PORT-TCP, KUBE-LOAD-BALANCER, ...) or not for outside clients (...-LOCAL), admit
// certain sources only (KUBE-LOAD-BALANCER-FW), drop for want of a local endpoint (KUBE-EXTERNAL-NO-LOCAL).
//
// Each change is worked out as entries of sets, virtual servers, destinations and addresses that come and go, and costs
// that many netlink messages. An endpoint that goes keeps its connections: its destination stays, with weight 0, until
// they have ended.
//
// Two things differ from the other modes by the nature of it. A node owns the addresses of Services, and answers ARP
// for them unless told otherwise (ProxyConfig.IPVSStrictARP). And under externalTrafficPolicy Local one set of
// endpoints serves everybody: pods and the node itself get the endpoints of other nodes only where there is no local
// one.
package ipvs

import (
	"context"

	"github.com/viplab/viplab/suite/spec"
)

// New makes the proxier.
func New() spec.Proxier { return proxier{} }

type proxier struct{}

func (proxier) Name() string { return "ipvs" }

// Features lacks, of what the iptables proxier has:
//   - RandomSpread: the default scheduler, rr, takes turns.
//   - NodePortLocalhost: the kernel does not translate packets to loopback addresses on their way through IPVS.
//   - VirtualIP: kube-ipvs0 has the addresses.
//   - UDPKeepsLast: a virtual server loses a UDP backend that serves no more at once, and with it its flows.
//   - ResolvesClashes: IPVS finds the connection of a reply by client and backend alone.
//   - LargeFromNode: routing takes a process's datagram for one to the device lo, whose MTU is 65536, and IPVS does not make
//     it smaller: the process is told the MTU of the way, which in IPv6 is not remembered for a local address.
//   - BridgedFragmentsV6: on its way through a bridge a datagram is put together, and the size of its fragments is lost. IPVS
//     takes it for one that was sent in one piece, and answers that it is too big (__mtu_check_toobig_v6 in ip_vs_xmit.c).
//   - ETPLocalShortcut: one set of endpoints serves everybody (above).
//   - OutlivesService: a connection whose virtual server is gone leads nowhere.
//   - IPTables: a few rules and IP sets of another shape.
func (proxier) Features() spec.FeatureSet {
	return spec.Features(
		spec.SurvivesRestart, spec.Cleanup, spec.SCTP, spec.ClusterIP, spec.NodePort, spec.ExternalIPs, spec.LoadBalancer,
		spec.ETPLocal, spec.ITPLocal,
		spec.SessionAffinity, spec.Hairpin, spec.HealthCheckNodePort, spec.TerminatingFallback, spec.Topology,
		spec.SourceAddress, spec.NodePortAnyLocalAddress, spec.ForwardAccept, spec.DropInvalid, spec.ConntrackCleanupUDP,
		spec.KernelNAT, spec.NodePortPrecedence, spec.MasqueradeMark, spec.IPVS, spec.NodeHints,
		spec.ConntrackSparesOthers, spec.ConntrackFollowsFrontends, spec.ClusterIPFromOutside,
		spec.NoEndpointsRefused, spec.SourceRanges, spec.HealthCheckBody, spec.HealthCheckAccept,
		spec.NoEndpointsRefusedOnNode, spec.ExternalIPsGate, spec.AffinityManyClients, spec.UDPDrains,
	)
}

// Usable looks for the programs, and tries in an empty namespace whether the kernel does all that is needed.
func (proxier) Usable(ctx context.Context) error { return probe(ctx, schedulers[0]) }

func (proxier) Start(ctx context.Context, node spec.Node) (spec.Instance, error) {
	in, err := newInstance(ctx, node)
	if err != nil {
		return nil, err
	}
	return in, nil
}
