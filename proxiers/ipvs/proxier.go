// SPDX-License-Identifier: Apache-2.0

// Package ipvs serves Services with IPVS, the kernel's load balancer. Each address and port of a Service is a virtual
// server, and each endpoint behind it a destination. A scheduler in the kernel picks a destination for each connection.
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
// The device kube-ipvs0 has the ClusterIPs, so that the kernel delivers packets to them locally. NodePorts are virtual
// servers on the node's own addresses. External and load balancer addresses stay where they are, which may be another
// node: packets to the ports of Services there get a mark (mangle, KUBE-IPVS-DELIVERY), and a routing rule delivers
// what has the mark locally.
//
// The number of iptables rules is constant. They match IP sets, which group frontends by their treatment: masquerade
// always (KUBE-NODE-PORT-TCP, KUBE-LOAD-BALANCER, ...) or not for outside clients (...-LOCAL), admit only some sources
// (KUBE-LOAD-BALANCER-FW), drop because there is no local endpoint (KUBE-EXTERNAL-NO-LOCAL).
//
// A change is computed as a difference of set entries, virtual servers, destinations and addresses, and costs that many
// netlink messages. A removed endpoint drains: its destination stays with weight 0 until its connections have ended.
//
// Two differences from the other modes are inherent in IPVS. A node owns the ClusterIPs, and answers ARP for them
// unless ProxyConfig.IPVSStrictARP is set. And under externalTrafficPolicy Local all clients share one set of
// endpoints: pods and the node itself get the endpoints of other nodes only if there is no local one.
package ipvs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/moby/ipvs"

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
	k, err := open(site.Host.NS, r, scheduler, site.StateDir, site.Log)
	if err != nil {
		return nil, err
	}
	t := site.Config.IPVSTimeouts
	config := ipvs.Config{TimeoutTCP: t.TCP, TimeoutTCPFin: t.TCPFin, TimeoutUDP: t.UDP} // zero: no change
	if err := k.servers.handle.SetConfig(&config); err != nil {
		return nil, errors.Join(fmt.Errorf("set the timeouts of IPVS: %w", err), k.close())
	}
	return &family{primary: site.Host.Addr(site.Family), log: site.Log, kernel: k, want: newDesired()}, nil
}
