// SPDX-License-Identifier: Apache-2.0

// Package nftables serves Services with nftables: one table for each IP family, whose maps decide where a packet goes.
// A packet costs the same few look-ups whether there are ten Services or ten thousand, and so does a change: a Service
// is a set of map elements, and only one with session affinity or source ranges has chains of its own.
//
//	table ip kube-proxy, table ip6 kube-proxy
//
//	prerouting -110, output -110 -> firewall-check   @firewall-ips: goto firewall-SERVICE: drop sources not admitted
//	prerouting -100, output -100 -> services         @service-ips:  goto one of these:
//	    pick-3                               a random number below 3: goto use-0, use-1 or use-2
//	    use-1                                dnat to what @endpoints-1 has for this frontend
//	    external-local                       policy Local: pods and the node itself @short-circuit-ips: goto pick-3
//	                                                       all other clients        @local-ips: goto local-pick-2
//	    local-pick-2 -> local-use-0, 1       the same with @local-endpoints-0, 1
//	    service-SERVICE or local-SERVICE     session affinity: goto the endpoint that knows the client, else any
//	      -> endpoint-SERVICE__ENDPOINT      remember the client in @affinity-SERVICE__ENDPOINT, dnat
//	input, forward, output 0 -> service-endpoints-check  @no-endpoint-services: drop, or goto reject-chain
//	forward, output 0        -> cluster-ips-check        other ports of ClusterIPs: reject; unassigned addresses: drop
//	postrouting 100          -> masquerading             what was translated above, if replies would miss this node
//
// The key of every map is the frontend: the address, protocol and port that the client sent to. A NodePort is in the
// maps once for each of the node's addresses. The endpoints of a frontend are numbered: the first endpoint of each
// frontend is in the map endpoints-0, the second in endpoints-1, and so on.
//
// The checks for missing endpoints come after the translation: a packet that still goes to a virtual address then has
// no endpoint. Masquerading is decided by the packet's original destination, which connection tracking knows. So the
// proxier sets no mark that could collide with those of others.
//
// kube-proxy has a chain for each Service instead, which makes every change slower. nft reads all chains and sets
// before it adds a rule, and the kernel walks through all chains that maps lead to. A list of endpoints inside a rule
// is an anonymous set, and to name one the kernel looks at all the others.
//
// A sync is one transaction for each family, which is one run of nft, or two if chains are new: a packet on its way may
// be led to a new chain by a new element, and must find rules there. The first sync writes everything, and keeps the
// chains and maps of an earlier instance for packets on their way; later ones write the changes. Packets never meet a
// partial change.
//
// The proxier omits three things that others do. It has no rules that let Service traffic through other firewalls,
// because an accept here does not overrule a drop there. It does not serve NodePorts on 127.0.0.1, because that
// requires route_localnet. And it does not drop INVALID packets: for servers that send out-of-window segments, set
// nf_conntrack_tcp_be_liberal.
package nftables

import (
	"context"
	"net/netip"
	"time"

	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/internal/proxiers/nfquery"
	"github.com/viplab/viplab/internal/proxiers/nft"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/proxiers/model"
	"github.com/viplab/viplab/suite/spec"
)

// New returns the proxier.
func New() *kit.Proxier { return kit.New(definition) }

var definition = kit.Definition{
	Name: "nftables",
	Features: spec.ByNetfilter().With(
		spec.NFTables, spec.NodePortAnyLocalAddress, spec.UnusedClusterIPsDropped,
	),
	Probe: probe,
	New:   func(_ context.Context, site kit.Site) (kit.Mechanism, error) { return familyOf(site) },
	Present: func(ns *netns.NS, f lab.Family) (bool, error) {
		return nfquery.HasChain(ns, f, tableName, chainServices)
	},
}

// probe runs the first sync of a node whose Services use every expression.
func probe(ctx context.Context, ns *netns.NS, _ string, ip lab.Family) error {
	plain, pods := kit.Sample(ip)
	plain.ID.Name, plain.Affinity, plain.HealthCheckPort = "plain", 0, 0
	sticky := *plain
	sticky.ID.Name, sticky.Number, sticky.NodePort, sticky.Affinity = "sticky", 81, 30081, time.Minute
	ports := []*model.Port{plain, &sticky, kit.UnservedSample(ip)}
	f, err := newFamily(ns, settings{family: ip, podRange: pods, nodePods: pods, services: []netip.Prefix{pods}})
	if err != nil {
		return err
	}
	return nft.Unusable(ctx, f.Program(ctx, &model.State{Services: []*model.Service{{Name: "probe", Ports: ports}}},
		kit.Place{}), "Service rules for IP"+ip.String())
}
