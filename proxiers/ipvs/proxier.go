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
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/internal/proxiers/nodeaddr"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/suite/spec"
)

// New returns the proxier.
func New() spec.Proxier { return kit.New(definition) }

// definition lacks, of what the iptables proxier has:
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
var definition = kit.Definition{
	Name: "ipvs",
	Features: spec.InKernel().With(
		spec.IPVS, spec.MasqueradeMark, spec.NodePortAnyLocalAddress, spec.ForwardAccept, spec.DropInvalid,
		spec.HealthCheckAccept, spec.NoEndpointsRefusedOnNode, spec.AffinityManyClients, spec.UDPDrains,
		spec.ConntrackSparesOthers, spec.ConntrackFollowsFrontends,
	),
	Settings: settings,
	Device:   deviceName,
	Probe:    probe,
	New:      func(_ context.Context, site kit.Site) (kit.Mechanism, error) { return newFamily(site) },
}

// schedulers are those of the kernel that pick by what Services are made of: round robin, least connection, source and
// destination hashing, shortest expected delay, never queue, maglev hashing.
var schedulers = []string{"rr", "wrr", "lc", "wlc", "sh", "dh", "sed", "nq", "mh"}

// settings are what IPVS needs to do the work of a Service proxier. The kernel has one of each for both families.
func settings(node spec.Node) []netns.Setting {
	all := []netns.Setting{
		// Connections are entered into connection tracking: without it there is no masquerading, and no "ESTABLISHED".
		{Key: "net.ipv4.vs.conntrack", Value: "1"},
		// A client that uses a port again while the last connection from it is in TIME_WAIT begins a new one. Before Linux
		// 5.9 that took a second each time, and 0 was better.
		{Key: "net.ipv4.vs.conn_reuse_mode", Value: "1"},
		// Packets for a backend that is gone are not swallowed until the connection expires.
		{Key: "net.ipv4.vs.expire_nodest_conn", Value: "1"},
		// Session affinity to a backend that takes no new connections ends.
		{Key: "net.ipv4.vs.expire_quiescent_template", Value: "1"},
	}
	if node.Config.IPVSStrictARP {
		all = append(all,
			// ARP is answered on the device alone that has the address: never for those on kube-ipvs0.
			netns.Setting{Key: "net.ipv4.conf.all.arp_ignore", Value: "1"},
			// Nor are they told to others as the sender's address.
			netns.Setting{Key: "net.ipv4.conf.all.arp_announce", Value: "2"},
		)
	}
	return all
}

func newFamily(site kit.Site) (*family, error) {
	scheduler := cmp.Or(site.Config.IPVSScheduler, schedulers[0])
	if !slices.Contains(schedulers, scheduler) {
		return nil, fmt.Errorf("unknown scheduler %q", scheduler)
	}
	if err := probeScheduler(scheduler); err != nil {
		return nil, err
	}
	r := rules{
		family: site.Family, podRange: nodeaddr.OfFamily(site.ClusterCIDRs, site.Family),
		masqueradeAll: site.Config.MasqueradeAll,
	}
	k, err := open(site.Host.NS, r, scheduler, site.StateDir, site.Log)
	if err != nil {
		return nil, err
	}
	return &family{primary: site.Host.Addr(site.Family), log: site.Log, kernel: k, want: newDesired()}, nil
}
