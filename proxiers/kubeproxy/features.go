// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import "github.com/viplab/viplab/suite/spec"

// since lists the minor releases in which features came to the modes that have them now.
var since = []struct {
	minor    int
	features []spec.Feature
}{
	{26, []spec.Feature{spec.TerminatingFallback}}, // KEP-1669: beta, on by default
	// KEP-3836: /livez; kubernetes#118999: the number of endpoints is given as a weight
	{28, []spec.Feature{spec.ProxierHealthz, spec.HealthCheckBody}},
	{conntrackFlags, []spec.Feature{spec.ConntrackSettings}},
	{30, []spec.Feature{spec.IPMode}}, // KEP-1860: beta, on by default
	// KEP-4444: before, only Services with an annotation followed hints. The nftables mode was alpha before, and a mode
	// cleaned up only after itself.
	{31, []spec.Feature{spec.Topology, spec.ModeSwitch, spec.PrimaryNodePorts}},
	{33, []spec.Feature{spec.UnusedClusterIPsDropped}},        // KEP-1880: it watches ServiceCIDRs
	{34, []spec.Feature{spec.NodeHints}},                      // KEP-3015: beta, on by default
	{36, []spec.Feature{spec.NFTables, spec.ExternalIPsGate}}, // the layout of the table changed until then; KEP-5707
}

// conntrackFlags is the minor release that brought flags for UDP timeouts and for liberal tracking (kubernetes#120354,
// #120808). A cluster with other scenarios may configure them, too.
const conntrackFlags = 29

// features returns the features of a mode in a release. The functions below give the reason for each feature that a
// mode lacks. Deviations from the API are no features: suite/expect/known/kube-proxy.yaml lists them.
func (m Mode) features(minor int) spec.FeatureSet {
	if m == Userspace {
		return userspaceFeatures()
	}
	of := map[Mode]func() spec.FeatureSet{IPTables: iptablesFeatures, IPVS: ipvsFeatures, NFTables: nftablesFeatures}
	set := of[m]().With(spec.MasqueradeMark, spec.ProxierHealthz, spec.Metrics, spec.MinSyncPeriod, spec.BindHardFail,
		spec.ConfigFile)
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

// iptablesFeatures returns the features of the iptables mode.
func iptablesFeatures() spec.FeatureSet {
	return spec.ByNetfilter().With(
		spec.IPTables, spec.NodePortAnyLocalAddress, spec.NodePortLocalhost, spec.OpensFirewall, spec.DropInvalid,
		spec.SelfHealing, spec.MasqueradeBit,
	)
}

// nftablesFeatures returns the features of the nftables mode. It differs from the iptables mode on purpose (KEP-3866,
// "Differences between iptables and nftables mode" in the Kubernetes documentation, pkg/proxy/nftables/README.md):
//   - NodePortAnyLocalAddress: --nodeport-addresses is "primary" unless set.
//   - NodePortLocalhost: never on 127.0.0.1; route_localnet stays off.
//   - OpensFirewall: it does not open the firewalls of others, because their verdicts would hold
//     anyway.
//   - SelfHealing: it does not watch its rules; it rewrites everything after a failed transaction, and every hour.
//   - DropInvalid: it has no rule against INVALID packets; use --conntrack-tcp-be-liberal instead.
//   - IPTables: it uses another kernel interface.
func nftablesFeatures() spec.FeatureSet {
	return spec.ByNetfilter().With(
		spec.NFTables, spec.UnusedClusterIPsDropped, spec.MasqueradeBit,
	)
}

// ipvsFeatures returns the features of the ipvs mode. It differs from the iptables mode because of IPVS ("Virtual IPs
// and Service Proxies" in the Kubernetes documentation, pkg/proxy/ipvs/README.md):
//   - RandomSpread: the default scheduler is round robin (rr).
//   - NodePortLocalhost: virtual servers for NodePorts are on the addresses of devices, loopback excluded.
//   - VirtualIP: the device kube-ipvs0 has the Service addresses; nodes answer ARP for them unless --ipvs-strict-arp is
//     set.
//   - UDPDrains: a virtual server loses a UDP endpoint at once, and its flows with it.
//   - IPTables: it has a few rules and IP sets in another layout.
func ipvsFeatures() spec.FeatureSet {
	return spec.ByKernel().With(
		spec.IPVS, spec.IPVSPersistence, spec.NodePortAnyLocalAddress, spec.OpensFirewall, spec.MasqueradeBit,
		spec.DropInvalid, // it has no such rule, but IPVS translates replies in a hook of its own, whatever their state
		spec.SelfHealing, // a full sync every 30 s
	)
}

// userspaceFeatures returns the features of a relay: connections end in kube-proxy, which opens others to the endpoints
// (pkg/proxy/userspace, until v1.25). It lacks
//   - SourceAddress, KernelNAT: endpoints see the node; there is no translation from client to endpoint.
//   - RandomSpread: endpoints are used in rotation.
//   - ETPLocal, ITPLocal, HealthCheckNodePort, Topology, TerminatingFallback: the mode reads Endpoints, which have no
//     node and no conditions.
//   - InKernel: relays end with the process, and NodePorts are sockets: the first process to bind one keeps it.
//   - SourceRanges, IPMode: the mode ignores them.
//   - IPTables: its portal chains have a layout of their own.
//   - SCTP: the mode relays TCP and UDP.
//
// As Relays, it dials the next endpoint (TryConnectEndpoints). It has DropInvalid and OpensFirewall because no packet
// of a connection to an endpoint is forwarded to a client.
func userspaceFeatures() spec.FeatureSet {
	return spec.Features(
		spec.ClusterIP, spec.NodePort, spec.ExternalIPs, spec.LoadBalancer, spec.SessionAffinity,
		spec.NodePortAnyLocalAddress, spec.NodePortLocalhost, spec.OpensFirewall, spec.DropInvalid, spec.VirtualIP,
		spec.Relays, spec.ServiceProxyName, spec.ConntrackTimeouts, spec.NodePortAddresses, spec.MasqueradeAll,
		spec.Cleanup,
	)
}
