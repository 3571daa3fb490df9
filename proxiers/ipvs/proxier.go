// SPDX-License-Identifier: Apache-2.0

// Package ipvs serves Services with IPVS, the kernel's load balancer. Each address and port of a Service is a virtual
// server, and each endpoint behind it a destination. A scheduler in the kernel picks a destination for each connection.
//
//	                 mangle PREROUTING     nat PREROUTING       filter INPUT        IPVS (LOCAL_IN, 99)
//	                 KUBE-PROXY-FIREWALL   KUBE-SERVICES        KUBE-IPVS-FILTER    destination rewritten
//	packet to a      what must not be      marks what is to     what is no port     +-------------------+
//	Service -------> served is dropped --> be masqueraded, and  of a Service is --> | virtual servers   |
//	                                       translates what      refused             | 10.96.0.10:80     |
//	                                       IPVS does not serve                      |  -> 10.244.1.5:80 |
//	                                                 |                              |  -> 10.244.2.7:80 |
//	                                                 |                              +-------------------+
//	                                                 v                                        v
//	                                       FORWARD, POSTROUTING -> endpoint        OUTPUT, POSTROUTING -> endpoint
//	reply -> FORWARD: KUBE-FORWARD lets it pass, IPVS (100) rewrites its source
//
// Packets of the node itself pass the chains OUTPUT of these tables instead of PREROUTING, and then IPVS in LOCAL_OUT.
// KUBE-POSTROUTING masquerades what is marked.
//
// The device kube-ipvs0 has the ClusterIPs, so that the kernel delivers packets to them locally. A local route by lo to
// each IPv4 one lets sockets of the node learn of a smaller path MTU (localroute.go says why). NodePorts are virtual
// servers on the node's own addresses. External and load balancer addresses stay where they are, which may be another
// node: packets to the ports of Services there get a mark (mangle, KUBE-IPVS-DELIVERY), and a routing rule delivers
// what has the mark locally.
//
// Rules of the nat table serve what IPVS cannot serve as the API promises: UDP, session affinity, and frontends of
// policy Local (translations.go says why). They lead to chains of each port, as in the iptables mode (package dnat).
//
// The number of all other rules is constant. They match IP sets, which group frontends by their treatment: masquerade
// what IPVS serves (KUBE-NODE-PORT-TCP, KUBE-LOAD-BALANCER, ...), admit only some sources (KUBE-LOAD-BALANCER-FW), drop
// because there is no local endpoint (KUBE-EXTERNAL-NO-LOCAL).
//
// A change is computed as a difference of set entries, virtual servers, destinations and addresses, and costs that many
// netlink messages. If it concerns translations, it also costs a script for iptables-restore. A removed endpoint
// drains: its destination stays with weight 0 until its connections have ended.
//
// One difference from the other modes is inherent in IPVS: a node owns the ClusterIPs, and answers ARP for them unless
// ProxyConfig.IPVSStrictARP is set.
package ipvs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/moby/ipvs"

	"github.com/viplab/viplab/internal/proxiers/dnat"
	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/internal/proxiers/nodeaddr"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/suite/spec"
)

// New returns the proxier.
func New() spec.Proxier { return kit.New(definition) }

// definition lacks these features of the iptables proxier:
//   - RandomSpread: the default scheduler is round robin (rr).
//   - NodePortLocalhost: the kernel does not translate packets to loopback addresses on their way through IPVS.
//   - VirtualIP: kube-ipvs0 has the addresses.
//   - IPTables: it has a few rules and IP sets in another layout.
//   - IPVSPersistence: rules remember the clients of Services with session affinity.
var definition = kit.Definition{
	Name: "ipvs",
	Features: spec.ByKernel().With(
		spec.IPVS, spec.MasqueradeMark, spec.NodePortAnyLocalAddress, spec.OpensFirewall, spec.DropInvalid,
		spec.UDPDrains, spec.MasqueradeBit,
	),
	Settings: settings,
	Device:   deviceName,
	Probe:    probe,
	New:      func(_ context.Context, site kit.Site) (kit.Mechanism, error) { return newFamily(site) },
}

// schedulers are the kernel's schedulers that need only what a Service defines: round robin, least connection, source
// and destination hashing, shortest expected delay, never queue, maglev hashing.
var schedulers = []string{"rr", "wrr", "lc", "wlc", "sh", "dh", "sed", "nq", "mh"}

// settings returns the sysctls that a Service proxier needs for IPVS. Both families share each of them.
func settings(node spec.Node) []netns.Setting {
	all := []netns.Setting{
		// Connection tracking sees the connections. Without it there is no masquerading, and no state ESTABLISHED.
		{Key: "net.ipv4.vs.conntrack", Value: "1"},
		// A client that reuses a port while its last connection is in TIME_WAIT starts a new connection. Before Linux
		// 5.9 that took a second, so 0 was better.
		{Key: "net.ipv4.vs.conn_reuse_mode", Value: "1"},
		// The table of connections keeps its size up to 65,536 of them (ipvs-sysctl.rst; older kernels have a table of
		// fixed size). While Linux resizes it, it can find the entry of the last connection from a reused port before
		// that of the new one. It sends packets by such an entry without connection tracking, so they are not
		// masqueraded, and get no answer.
		{Key: "net.ipv4.vs.conn_lfactor", Value: "8", Optional: true},
		// Packets for a removed backend are not dropped until the connection expires.
		{Key: "net.ipv4.vs.expire_nodest_conn", Value: "1"},
		// Session affinity to a backend with weight 0 ends.
		{Key: "net.ipv4.vs.expire_quiescent_template", Value: "1"},
	}
	if node.Config.IPVSStrictARP {
		all = append(all,
			// A node answers ARP only on the device that has the address, so never for addresses on kube-ipvs0.
			netns.Setting{Key: "net.ipv4.conf.all.arp_ignore", Value: "1"},
			// A node does not use these addresses as the sender's address in ARP requests.
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
		family: site.Family, podRange: nodeaddr.FirstOfFamily(site.ClusterCIDRs, site.Family),
		nodePods:      nodeaddr.FirstOfFamily(site.PodCIDRs, site.Family),
		masqueradeAll: site.Config.MasqueradeAll, mark: site.Config.MasqueradeMark(),
		deliver: deliveryMark(site.Config.MasqueradeMark()),
	}
	t := translator{dnat.Chains{NodePods: r.nodePods}, r.deliver}
	k, err := open(site.Host.NS, r, scheduler, site.StateDir, site.Log)
	if err != nil {
		return nil, err
	}
	after := site.Config.IPVSTimeouts
	config := ipvs.Config{TimeoutTCP: after.TCP, TimeoutTCPFin: after.TCPFin, TimeoutUDP: after.UDP} // zero: no change
	if err := k.servers.handle.SetConfig(&config); err != nil {
		return nil, errors.Join(fmt.Errorf("set the timeouts of IPVS: %w", err), k.close())
	}
	return &family{primary: site.Host.Addr(site.Family), log: site.Log, kernel: k, want: newDesired(t)}, nil
}
