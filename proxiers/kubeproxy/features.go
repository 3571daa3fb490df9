// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import "github.com/viplab/viplab/suite/spec"

// since are the releases in which features came to the modes that have them now.
var since = []struct {
	minor    int
	features []spec.Feature
}{
	{26, []spec.Feature{spec.TerminatingFallback}}, // KEP-1669: beta, and on
	// KEP-3836: /livez; kubernetes#118999: the number of endpoints is given as a weight
	{28, []spec.Feature{spec.ProxierHealthz, spec.HealthCheckBody}},
	// KEP-4444: before, hints counted for Services with an annotation alone. Before, the nftables mode was alpha, and a
	// mode cleaned up after itself alone.
	{31, []spec.Feature{spec.Topology, spec.ModeSwitch}},
	{32, []spec.Feature{spec.UDPKeepsLast}},                   // kubernetes#127318: before, the last endpoint took flows along
	{34, []spec.Feature{spec.NodeHints}},                      // KEP-3015: beta, and on
	{36, []spec.Feature{spec.NFTables, spec.ExternalIPsGate}}, // the shape of the table changed until then; KEP-5707
}

// features returns what a mode promises in a release. The reason stands with each feature that a mode lacks.
//
// What none of the modes has is known, and stands in pkg/proxy/conntrack/cleanup.go and its callers:
//   - ConntrackSparesOthers: a flow to the number of a NodePort is taken for one of the NodePort, whatever its address.
//   - ConntrackFollowsFrontends: stale flows are looked for when the endpoints of a UDP Service have changed, not
//     when a Service has.
func (m Mode) features(minor int) spec.FeatureSet {
	if m == Userspace {
		return userspaceFeatures()
	}
	of := map[Mode]func() spec.FeatureSet{IPTables: iptablesFeatures, IPVS: ipvsFeatures, NFTables: nftablesFeatures}
	set := of[m]().With(spec.MasqueradeMark, spec.ProxierHealthz)
	if m.other() != "" {
		set = set.With(spec.ModeSwitch)
	}
	for _, s := range since {
		if minor < s.minor {
			set = set.Without(s.features...)
		}
	}
	return set
}

// iptablesFeatures lack
//   - NoEndpointsRefusedOnNode: KUBE-EXTERNAL-SERVICES has no jump from OUTPUT (iptablesJumpChains).
//   - AffinityManyClients: the recent match remembers 100 clients of an endpoint (xt_recent's parameter ip_list_tot).
func iptablesFeatures() spec.FeatureSet {
	return spec.ByNetfilter().With(
		spec.IPTables, spec.NodePortAnyLocalAddress, spec.NodePortLocalhost, spec.ForwardAccept, spec.DropInvalid,
		spec.HealthCheckAccept, spec.SelfHealing,
	)
}

// nftablesFeatures differ from those of the iptables mode on purpose (KEP-3866, "Differences between iptables and
// nftables mode" in the Kubernetes documentation, pkg/proxy/nftables/README.md):
//   - NodePortAnyLocalAddress: --nodeport-addresses is "primary" unless set.
//   - NodePortLocalhost: never on 127.0.0.1; route_localnet stays off.
//   - ForwardAccept, HealthCheckAccept: no holes are made into the firewalls of others, whose verdicts would hold anyway.
//   - SelfHealing: nothing watches the rules; a transaction that fails makes everything be written anew, as does each hour.
//   - DropInvalid: the rule against INVALID packets is gone; --conntrack-tcp-be-liberal is the answer.
//   - IPTables: another kernel interface.
func nftablesFeatures() spec.FeatureSet {
	return spec.ByNetfilter().With(
		spec.NFTables, spec.NoEndpointsRefusedOnNode, spec.UnusedClusterIPsDropped, spec.AffinityManyClients,
	)
}

// ipvsFeatures differ from those of the iptables mode by the nature of IPVS ("Virtual IPs and Service Proxies" in the
// Kubernetes documentation, pkg/proxy/ipvs/README.md):
//   - RandomSpread: the default scheduler, rr, takes turns.
//   - NodePortLocalhost: virtual servers for NodePorts are on the addresses of devices, loopback excluded.
//   - VirtualIP: addresses of Services are on the device kube-ipvs0; ARP is answered for them unless --ipvs-strict-arp.
//   - AffinityTimeout: a client is remembered as long as it has connections, UDP ones and closed TCP ones included.
//   - DropInvalid: no such rule. IPVS translates replies in hooks of its own.
//   - UDPDrains, UDPKeepsLast: a virtual server loses a UDP endpoint at once, and with it its flows.
//   - ResolvesClashes: IPVS finds the connection of a reply by client and endpoint alone.
//   - LargeFromNode: IPVS does not cut a process's datagram, which was made for the device lo, into pieces.
//   - BridgedFragmentsV6: nor, over IPv6, one that came in pieces and was put together on a bridge.
//   - ETPLocalShortcut: one set of endpoints serves everybody.
//   - OutlivesService: with its virtual server a connection loses its way.
//   - IPTables: a few rules and ipsets of another shape.
//   - PodsByAddress: under policy Local, whoever comes to a node without an endpoint is sent to those of other nodes.
func ipvsFeatures() spec.FeatureSet {
	return spec.InKernel().With(
		spec.IPVS, spec.NodePortAnyLocalAddress, spec.ForwardAccept, spec.HealthCheckAccept, spec.AffinityManyClients,
		spec.NoEndpointsRefusedOnNode, spec.SelfHealing, // a full sync every 30 s
	)
}

// userspaceFeatures are those of a relay: connections end in kube-proxy, which makes others to the endpoints
// (pkg/proxy/userspace, until v1.25).
//   - SourceAddress, KernelNAT: endpoints see the node; there is no translation from client to endpoint.
//   - RandomSpread: endpoints take turns.
//   - ETPLocal, ITPLocal, HealthCheckNodePort, Topology, TerminatingFallback: the mode reads Endpoints, which do not tell
//     where an endpoint is or how it ends.
//   - ConntrackCleanupUDP: no entry leads to an endpoint, so none becomes stale.
//   - NodePortPrecedence: NodePorts are sockets, and the first to bind one has it; that is NodePortHeld.
//   - NoEndpointsRefused: a relay takes the connection, and ends it when it finds nobody.
//   - SourceRanges: not looked at.
//   - IPTables: portal chains, in no way like those of the iptables mode.
//   - SurvivesRestart: relays end with the process.
//   - SCTP: the mode relays TCP and UDP.
//
// It has DialsAgain (TryConnectEndpoints goes on to the next) and OutlivesService (stopProxy closes the listener
// alone).
//
// It has DropInvalid and ForwardAccept because nothing of a connection to an endpoint is ever forwarded to a client.
func userspaceFeatures() spec.FeatureSet {
	return spec.Features(
		spec.ClusterIP, spec.NodePort, spec.ExternalIPs, spec.LoadBalancer, spec.SessionAffinity, spec.Hairpin,
		spec.NodePortAnyLocalAddress, spec.NodePortLocalhost, spec.ForwardAccept, spec.DropInvalid, spec.VirtualIP,
		spec.NodePortHeld, spec.UserspacePortals, spec.DialsAgain, spec.OutlivesService, spec.Cleanup, spec.ResolvesClashes,
		spec.LargeFromNode, spec.BridgedFragmentsV6,
	)
}
