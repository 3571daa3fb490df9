// SPDX-License-Identifier: Apache-2.0

// Package nftables serves Services with nftables: one table for each IP family, in which maps say what becomes of a
// packet. A packet costs the same few look-ups whether there are ten Services or ten thousand, and so does a change: a
// Service is elements of maps, and only one with session affinity or source ranges has chains of its own.
//
//	table ip kube-proxy, table ip6 kube-proxy
//
//	prerouting -110, output -110 -> firewall-check   @firewall-ips: goto firewall-SERVICE: drop sources not admitted
//	prerouting -100, output -100 -> services         @service-ips:  goto one of these:
//	    pick-3                               a random number below 3: goto use-0, use-1 or use-2
//	    use-1                                dnat to what @endpoints-1 has for this frontend
//	    external-local                       policy Local: pods and the node itself @short-circuit-ips: goto pick-3
//	                                                       everybody else           @local-ips: goto local-pick-2
//	    local-pick-2 -> local-use-0, 1       the same with @local-endpoints-0, 1
//	    service-SERVICE or local-SERVICE     session affinity: goto the endpoint that knows the client, else any
//	      -> endpoint-SERVICE__ENDPOINT      remember the client in @affinity-SERVICE__ENDPOINT, dnat
//	input, forward, output 0 -> service-endpoints-check  @no-endpoint-services: drop, or goto reject-chain
//	forward, output 0        -> cluster-ips-check        other ports of ClusterIPs: reject; addresses of nobody: drop
//	postrouting 100          -> masquerading             what was translated above, if replies would miss this node
//
// Everything is keyed by the frontend, which is what the client sent to: address, protocol and port. A NodePort is no
// exception; it stands in the maps once for each of the node's addresses. The endpoints of a frontend are numbered: the
// first one of each frontend is in the map endpoints-0, the second in endpoints-1, and so on.
//
// The checks for missing endpoints come after the translation: a packet that still goes to a virtual address then is
// one that nobody serves. Whether to masquerade is decided by the packet's original destination, which connection
// tracking knows, so no mark is set that could collide with those of others.
//
// A chain for each Service would read as well, and is what kube-proxy makes. But it costs with every change: nft asks
// for all chains and sets before it adds a rule, and the kernel walks through all chains that maps lead to; and a list
// of endpoints inside a rule is a set without a name, for which the kernel finds one by looking at all the others.
//
// A sync is one transaction for each family, a run of nft. The first one writes everything, whatever the kernel held
// before; later ones write what changed. No packet meets half of one.
//
// Three things that other proxiers do are left out. There are no rules that let Service traffic through other people's
// firewalls, as a verdict here could not overrule one there. NodePorts are not served on 127.0.0.1, which would take
// route_localnet. And INVALID packets are not dropped: whoever has a server that sends segments outside of the window
// sets nf_conntrack_tcp_be_liberal.
package nftables

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/viplab/viplab/internal/proxiers/kit"
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
		spec.NFTables, spec.NodePortAnyLocalAddress, spec.AffinityManyClients, spec.NoEndpointsRefusedOnNode,
		spec.UnusedClusterIPsDropped, spec.ConntrackSparesOthers, spec.ConntrackFollowsFrontends,
	),
	Probe: probe,
	New:   func(_ context.Context, site kit.Site) (kit.Mechanism, error) { return newFamily(site) },
	Present: func(ns *netns.NS, f lab.Family) (bool, error) {
		return nft.HasChain(ns, f, tableName, chainServices)
	},
}

// probe runs the first sync of a node whose Services use every expression there is.
func probe(ctx context.Context, ns *netns.NS, _ string, f lab.Family) error {
	t, err := openTable(ns, f)
	if err != nil {
		return err
	}
	plain, pods := kit.Sample(f)
	plain.ID.Name, plain.Affinity, plain.HealthCheckPort = "plain", 0, 0
	sticky := *plain
	sticky.ID.Name, sticky.Number, sticky.NodePort, sticky.Affinity = "sticky", 81, 30081, time.Minute
	unserved := &model.Port{ID: model.PortID{Namespace: "probe", Name: "unserved", Protocol: "UDP"}, Number: 53,
		ClusterIP: plain.ClusterIP}
	state := &model.State{Services: []*model.Service{{Name: "probe", Ports: []*model.Port{plain, &sticky, unserved}}}}
	s := &family{
		table:    t,
		frame:    frame{family: f, podRange: pods, services: []netip.Prefix{pods}},
		renderer: renderer{family: f},
	}
	err = s.programAll(ctx, state, s.renderer)
	if err == nil || ctx.Err() != nil {
		return err
	}
	return &spec.UnusableError{
		Missing: fmt.Sprintf("the expressions of nftables that Service rules for IP%s are made of", f),
		Cure: fmt.Sprintf("take nft 1.0.6 or later and Linux 5.13 or later, with the modules that are asked for (%v)",
			err),
	}
}
