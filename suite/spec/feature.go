// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"maps"
	"slices"
)

// Feature is the name of a behaviour that a proxier may promise and a scenario may need.
type Feature string

// The features. A scenario that needs a feature is skipped for proxiers that lack it. Where implementations differ on
// purpose, the difference is a feature.
const (
	ClusterIP           Feature = "clusterip"            // clusterIP:port reaches the endpoints
	NodePort            Feature = "nodeport"             // nodeIP:nodePort reaches the endpoints
	ExternalIPs         Feature = "externalips"          // spec.externalIPs are served
	LoadBalancer        Feature = "loadbalancer"         // status.loadBalancer ingress addresses are served
	ETPLocal            Feature = "etp-local"            // externalTrafficPolicy Local
	ITPLocal            Feature = "itp-local"            // internalTrafficPolicy Local
	SessionAffinity     Feature = "session-affinity"     // sessionAffinity ClientIP
	Hairpin             Feature = "hairpin"              // a pod reaches itself through its Service
	HealthCheckNodePort Feature = "healthcheck-nodeport" // HTTP on spec.healthCheckNodePort
	TerminatingFallback Feature = "terminating-endpoints"
	Topology            Feature = "topology"

	// SCTP: ports of protocol SCTP are served like those of TCP and UDP.
	SCTP Feature = "sctp"

	// SourceAddress: endpoints see the address of a pod that calls a ClusterIP, and under ETP Local that of an outside
	// client.
	SourceAddress Feature = "source-address"
	// RandomSpread: the proxier picks an endpoint for each connection independently, with equal probability.
	RandomSpread Feature = "random-spread"
	// NodePortAnyLocalAddress: NodePorts answer on every address of the node, not only its primary one.
	NodePortAnyLocalAddress Feature = "nodeport-any-local-address"
	// NodePortLocalhost: NodePorts answer on 127.0.0.1.
	NodePortLocalhost Feature = "nodeport-localhost"
	// ForwardAccept: the proxier's own traffic passes a FORWARD chain whose policy is DROP.
	ForwardAccept Feature = "forward-accept"
	// DropInvalid: packets in conntrack state INVALID do not leave a node untranslated.
	DropInvalid Feature = "drop-invalid"
	// ConntrackCleanupUDP: the proxier removes conntrack entries of removed UDP endpoints, and only those.
	ConntrackCleanupUDP Feature = "conntrack-cleanup-udp"
	// KernelNAT: translations are entries of the node's conntrack table.
	KernelNAT Feature = "kernel-nat"
	// VirtualIP: no interface has a ClusterIP as its address, and no node answers ARP for one.
	VirtualIP Feature = "virtual-ip"
	// MasqueradeMark: packets to be masqueraded carry the mark 0x4000 until they are.
	MasqueradeMark Feature = "masquerade-mark"
	// NodePortPrecedence: a NodePort wins over a process that listens on the same port of the node.
	NodePortPrecedence Feature = "nodeport-precedence"
	// ConntrackSparesOthers: the cleanup of ConntrackCleanupUDP spares flows to other machines, whatever their port.
	ConntrackSparesOthers Feature = "conntrack-spares-others"
	// ConntrackFollowsFrontends: if a Service gets a new address or port and keeps its endpoints, UDP flows that were
	// already sent there are served.
	ConntrackFollowsFrontends Feature = "conntrack-follows-frontends"
	// UDPDrains: if an endpoint gets no new flows, because it terminates or because of a policy, its established UDP flows
	// stay with it as long as it serves.
	UDPDrains Feature = "udp-drains"
	// UDPKeepsLast: a UDP flow stays with its endpoint when the Service loses its last endpoint.
	UDPKeepsLast Feature = "udp-keeps-last"
	// NodeHints: the proxier follows hints that name nodes, not only those that name zones (KEP-3015).
	NodeHints Feature = "node-hints"
	// DialsAgain: if an endpoint refuses a TCP connection, the proxier tries another endpoint.
	DialsAgain Feature = "dials-again"
	// ResolvesClashes: if two flows of one client would have the same translation, such as flows from one port to two
	// Services with the same endpoint, the proxier changes the source port of one.
	ResolvesClashes Feature = "resolves-clashes"
	// LargeFromNode: a process of a node can send datagrams larger than the path MTU to the endpoint.
	LargeFromNode Feature = "large-from-node"
	// BridgedFragmentsV6: a pod on a bridge can send IPv6 datagrams larger than the MTU of its own link.
	BridgedFragmentsV6 Feature = "bridged-fragments-v6"
	// ETPLocalShortcut: under ETP Local, traffic from a node's own pods and processes goes to the endpoints of all nodes,
	// even if this node has one.
	ETPLocalShortcut Feature = "etp-local-shortcut"
	// OutlivesService: an established connection survives the deletion of its Service.
	OutlivesService Feature = "outlives-service"
	// SurvivesRestart: while the proxier is not running, its node still serves established and new connections.
	SurvivesRestart Feature = "survives-restart"
	// SelfHealing: rules that another program deletes come back without a change of the cluster.
	SelfHealing Feature = "self-healing"

	// PodsByAddress: the proxier treats every packet with a source in the pod ranges as sent by a pod, whatever interface
	// it arrives on (--detect-local-mode=ClusterCIDR).
	PodsByAddress Feature = "pods-by-address"
	// ModeSwitch: the program has another mode, and each mode removes what the other left on the node.
	ModeSwitch Feature = "mode-switch"
	// Cleanup: the proxier has a command that removes everything it programmed.
	Cleanup Feature = "cleanup"
	// NoEndpointsRefused: connections to a Service without endpoints are refused.
	NoEndpointsRefused Feature = "no-endpoints-refused"
	// NoEndpointsRefusedOnNode: so are connections from processes of a node to the external addresses of such a Service.
	NoEndpointsRefusedOnNode Feature = "no-endpoints-refused-on-node"
	// ExternalIPsGate: an administrator can disable spec.externalIPs (KEP-5707).
	ExternalIPsGate Feature = "externalips-gate"
	// ClusterIPFromOutside: an outside client that routes the range of ClusterIPs to a node is served.
	ClusterIPFromOutside Feature = "clusterip-from-outside"
	// UnusedClusterIPsDropped: packets to an unassigned address in the range of ClusterIPs do not leave the node.
	UnusedClusterIPsDropped Feature = "unused-clusterips-dropped"
	// AffinityTimeout: affinity expires timeoutSeconds after the client's last new connection, even if the client has open
	// connections.
	AffinityTimeout Feature = "affinity-timeout"
	// AffinityManyClients: the proxier keeps affinity for more than a hundred clients of one endpoint.
	AffinityManyClients Feature = "affinity-many-clients"
	// SourceRanges: the proxier enforces loadBalancerSourceRanges.
	SourceRanges Feature = "source-ranges"
	// HealthCheckBody: the health check port reports the number of the node's endpoints in JSON, and as a weight in a
	// header.
	HealthCheckBody Feature = "healthcheck-body"
	// HealthCheckAccept: the health check port is reachable through an INPUT chain whose policy is DROP.
	HealthCheckAccept Feature = "healthcheck-accept"
	// ProxierHealthz: the proxier reports its own health on port 10256 (KEP-3836).
	ProxierHealthz Feature = "proxier-healthz"
	// NodePortHeld: the proxier binds a socket to each NodePort. If another process binds the port first, that process
	// keeps it.
	NodePortHeld Feature = "nodeport-held"
	// UserspacePortals: rules in portal chains redirect each Service port to a socket of the proxier.
	UserspacePortals Feature = "userspace-portals"
	// IPTables: the proxier programs iptables chains in the layout that kube-proxy documents.
	IPTables Feature = "iptables"
	// IPTablesLegacy: it does so through the legacy back end instead of nf_tables.
	IPTablesLegacy Feature = "iptables-legacy"
	// IPVS: the proxier programs IPVS virtual servers, a device kube-ipvs0 and IP sets in the layout that kube-proxy
	// documents.
	IPVS Feature = "ipvs"
	// NFTables: the proxier programs an nftables table with verdict maps in the layout that kube-proxy documents.
	NFTables Feature = "nftables"

	// NetworkPolicy: pods that a NetworkPolicy selects are isolated accordingly. A proxier with this feature is an
	// enforcer.
	NetworkPolicy Feature = "networkpolicy"
	// PolicyDropLog: before a policy drops a packet, the packet is logged to NFLOG group 1 if ingress rules of the
	// receiver deny it, or group 2 if egress rules of the sender do. The prefix is "DPI|" or "DPE|" and the pod whose
	// rules deny it: "DPI|shop/db". A prefix is cut at the kernel's limit of 127 bytes (63 with iptables).
	PolicyDropLog Feature = "policy-drop-log"
	// CalicoChains: the enforcer programs iptables chains, mark bits and IP sets in the layout that Calico documents.
	CalicoChains Feature = "calico-chains"
)

// The feature sets of proxiers, and the remaining features. Every feature is in one of these lists.
var (
	core = []Feature{
		ClusterIP, NodePort, ExternalIPs, LoadBalancer, ETPLocal, ITPLocal, SessionAffinity, Hairpin, HealthCheckNodePort,
		HealthCheckBody, TerminatingFallback, Topology, NodeHints, SourceRanges, NoEndpointsRefused, ConntrackCleanupUDP,
		ClusterIPFromOutside, ExternalIPsGate, Cleanup,
	}
	inKernel    = []Feature{KernelNAT, SourceAddress, NodePortPrecedence, SurvivesRestart, SCTP}
	byNetfilter = []Feature{
		RandomSpread, VirtualIP, OutlivesService, UDPDrains, UDPKeepsLast, AffinityTimeout, ResolvesClashes, ETPLocalShortcut,
		LargeFromNode, BridgedFragmentsV6, PodsByAddress,
	}
	single = []Feature{
		NodePortAnyLocalAddress, NodePortLocalhost, ForwardAccept, DropInvalid, AffinityManyClients, ConntrackSparesOthers,
		ConntrackFollowsFrontends,
	}
	// beyond lists features that describe how a proxier works, that belong to its command line, or that the Service API
	// does not require. No proxier is assumed to have them, because packets are served either way.
	beyond = []Feature{
		CalicoChains, Cleanup, ClusterIPFromOutside, DialsAgain, ETPLocalShortcut, ExternalIPsGate, HealthCheckAccept,
		HealthCheckBody, IPTables, IPTablesLegacy, IPVS, MasqueradeMark, ModeSwitch, NFTables, NetworkPolicy,
		NoEndpointsRefusedOnNode, NodePortHeld, OutlivesService, PodsByAddress, PolicyDropLog, ProxierHealthz, SelfHealing,
		UDPKeepsLast, UnusedClusterIPsDropped, UserspacePortals,
	}
)

// Core returns the features that every current proxier promises.
func Core() FeatureSet { return Features(core...) }

// InKernel returns the features of proxiers whose connections the kernel translates.
func InKernel() FeatureSet { return Core().With(inKernel...) }

// ByNetfilter returns the features of proxiers that translate connections by netfilter rules.
func ByNetfilter() FeatureSet { return InKernel().With(byNetfilter...) }

var all = Features(slices.Concat(core, inKernel, byNetfilter, single, beyond)...)

// AllFeatures returns every feature, sorted.
func AllFeatures() []Feature { return all.List() }

// Known reports whether the feature exists.
func (f Feature) Known() bool { return all[f] }

// Assumed returns the features that a command is assumed to have if none are declared.
func Assumed() FeatureSet { return all.Without(beyond...) }

// FeatureSet is a set of features.
type FeatureSet map[Feature]bool

// Features returns a set of the given features.
func Features(fs ...Feature) FeatureSet {
	set := FeatureSet{}
	for _, f := range fs {
		set[f] = true
	}
	return set
}

// Missing returns the features in need that are not in the set, sorted.
func (s FeatureSet) Missing(need []Feature) []Feature {
	var out []Feature
	for _, f := range need {
		if !s[f] {
			out = append(out, f)
		}
	}
	slices.Sort(out)
	return out
}

// List returns the features of the set, sorted.
func (s FeatureSet) List() []Feature { return slices.Sorted(maps.Keys(s)) }

// With returns a copy of the set plus the given features.
func (s FeatureSet) With(fs ...Feature) FeatureSet {
	set := maps.Clone(s)
	for _, f := range fs {
		set[f] = true
	}
	return set
}

// Without returns a copy of the set minus the given features.
func (s FeatureSet) Without(fs ...Feature) FeatureSet {
	set := maps.Clone(s)
	for _, f := range fs {
		delete(set, f)
	}
	return set
}
