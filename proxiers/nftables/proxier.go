// Package nftables serves Services with nftables: one table for each IP family, in which maps say what becomes of a packet.
// A packet costs the same few look-ups whether there are ten Services or ten thousand, and so does a change: a Service is
// elements of maps, and only one with session affinity or source ranges has chains of its own.
//
//	table ip kube-proxy, table ip6 kube-proxy
//
//	prerouting -110, output -110 -> firewall-check   @firewall-ips: goto firewall-SERVICE: drop a source that is not admitted
//	prerouting -100, output -100 -> services         @service-ips:  goto ...
//	    pick-3            dnat to @endpoints[address . protocol . port . random number below 3]
//	    external-local    externalTrafficPolicy Local: pods and the node itself  @short-circuit-ips: goto pick-3
//	                                                   everybody else            @local-ips:         goto pick-local-2
//	    pick-local-2      dnat to @local-endpoints[address . protocol . port . random number below 2]
//	    service-SERVICE, local-SERVICE -> endpoint-SERVICE__ENDPOINT    session affinity: to the endpoint whose set
//	                                                   affinity-SERVICE__ENDPOINT has the client, else to any; remember
//	input, forward, output 0     -> service-endpoints-check  @no-endpoint-services: drop, or goto reject-chain
//	forward, output 0            -> cluster-ips-check        other ports of ClusterIPs: reject; addresses of nobody: drop
//	postrouting 100              -> masquerading             what was translated above, if replies would miss this node
//
// Everything is keyed by what the client sent to: address, protocol and port. A NodePort is no exception; it stands in the
// maps once for each of the node's addresses. The checks for missing endpoints come after the translation: a packet that
// still goes to a virtual address then is one that nobody serves. Whether to masquerade is decided by the packet's
// original destination, which connection tracking knows, so no mark is set that could collide with those of others.
//
// A sync is one transaction for each family, a run of nft. The first one writes everything, whatever the kernel held
// before; later ones write what changed. Readers never see half of one.
//
// Three things other proxiers do are left out: there are no rules that let Service traffic through other people's
// firewalls, as a verdict here could not overrule one there; NodePorts are not served on 127.0.0.1, which would take
// route_localnet; and INVALID packets are not dropped.
package nftables

import (
	"context"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/suite/spec"
)

// New makes the proxier.
func New() spec.Proxier { return proxier{} }

type proxier struct{}

func (proxier) Name() string { return "nftables" }

func (proxier) Features() spec.FeatureSet {
	return spec.Features(
		spec.ClusterIP, spec.NodePort, spec.ExternalIPs, spec.LoadBalancer, spec.ETPLocal, spec.ITPLocal,
		spec.SessionAffinity, spec.Hairpin, spec.HealthCheckNodePort, spec.TerminatingFallback, spec.Topology,
		spec.SourceAddress, spec.RandomSpread, spec.NodePortAnyLocalAddress, spec.ConntrackCleanupUDP, spec.KernelNAT,
		spec.VirtualIP, spec.NodePortPrecedence, spec.NFTables,
	)
}

// Usable looks for nft, and tries in an empty namespace whether nft and the kernel take the rules.
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
