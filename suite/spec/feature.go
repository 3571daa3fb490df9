// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"maps"
	"slices"
)

// Feature is a named promise that a proxier may make and a scenario may need.
type Feature string

// The promises. A proxier that lacks one is not judged by the scenarios that need it; where modes differ on purpose,
// the difference is a feature.
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

	// SCTP: ports of protocol SCTP are served as those of TCP and UDP are.
	SCTP Feature = "sctp"

	// SourceAddress: pods keep their address towards a ClusterIP, outside clients theirs under ETP Local.
	SourceAddress Feature = "source-address"
	// RandomSpread: an endpoint is drawn for each connection, independently and evenly.
	RandomSpread Feature = "random-spread"
	// NodePortAnyLocalAddress: NodePorts answer on every address of the node, not only its primary one.
	NodePortAnyLocalAddress Feature = "nodeport-any-local-address"
	// NodePortLocalhost: NodePorts answer on 127.0.0.1.
	NodePortLocalhost Feature = "nodeport-localhost"
	// ForwardAccept: the proxier's own traffic passes a FORWARD chain whose policy is DROP.
	ForwardAccept Feature = "forward-accept"
	// DropInvalid: packets in conntrack state INVALID do not leave a node un-translated.
	DropInvalid Feature = "drop-invalid"
	// ConntrackCleanupUDP: conntrack entries of vanished UDP endpoints are removed, healthy ones spared.
	ConntrackCleanupUDP Feature = "conntrack-cleanup-udp"
	// KernelNAT: translations are entries of the node's conntrack table.
	KernelNAT Feature = "kernel-nat"
	// VirtualIP: no interface owns a ClusterIP and nothing answers ARP for it.
	VirtualIP Feature = "virtual-ip"
	// MasqueradeMark: packets to be masqueraded carry the mark 0x4000 until then.
	MasqueradeMark Feature = "masquerade-mark"
	// NodePortPrecedence: a NodePort wins over a process that listens on the same port of the node.
	NodePortPrecedence Feature = "nodeport-precedence"
	// ConntrackSparesOthers: that clean-up leaves a flow alone which is sent to another machine, whatever its port.
	ConntrackSparesOthers Feature = "conntrack-spares-others"
	// ConntrackFollowsFrontends: a UDP flow to an address or port that a Service gets while its endpoints stay is served.
	ConntrackFollowsFrontends Feature = "conntrack-follows-frontends"
	// UDPDrains: a UDP flow stays with an endpoint that gets no new ones, because it terminates or by a policy, as long as
	// it serves.
	UDPDrains Feature = "udp-drains"
	// UDPKeepsLast: a UDP flow stays with its endpoint when the Service has none any more.
	UDPKeepsLast Feature = "udp-keeps-last"
	// NodeHints: hints that name nodes are followed, not only those that name zones (KEP-3015).
	NodeHints Feature = "node-hints"
	// DialsAgain: a TCP connection that one endpoint does not take is offered to another.
	DialsAgain Feature = "dials-again"
	// ResolvesClashes: flows of one client that would look alike once they are translated, as those from one port to two
	// Services with the same endpoint, are told apart by another source port.
	ResolvesClashes Feature = "resolves-clashes"
	// LargeFromNode: a process of a node sends datagrams larger than the way to the endpoint takes in one piece.
	LargeFromNode Feature = "large-from-node"
	// BridgedFragmentsV6: a pod on a bridge sends IPv6 datagrams larger than its own link takes in one piece.
	BridgedFragmentsV6 Feature = "bridged-fragments-v6"
	// ETPLocalShortcut: under ETP Local, a node's own pods and processes are sent to the endpoints of all nodes, even
	// where this node has one.
	ETPLocalShortcut Feature = "etp-local-shortcut"
	// OutlivesService: a connection goes on when its Service is deleted.
	OutlivesService Feature = "outlives-service"
	// SurvivesRestart: while the proxier is away, its node goes on to serve connections, old and new ones.
	SurvivesRestart Feature = "survives-restart"
	// SelfHealing: rules that somebody else has deleted come back by themselves, without a change of the cluster.
	SelfHealing Feature = "self-healing"

	// PodsByAddress: whoever sends from an address of the cluster's pods is taken for one, whatever way a packet comes in
	// (--detect-local-mode=ClusterCIDR).
	PodsByAddress Feature = "pods-by-address"
	// ModeSwitch: the program has another mode, and a mode takes away what the other one has left on the node.
	ModeSwitch Feature = "mode-switch"
	// Cleanup: on command, everything that was programmed is taken away.
	Cleanup Feature = "cleanup"
	// NoEndpointsRefused: clients of a Service that nobody serves are refused.
	NoEndpointsRefused Feature = "no-endpoints-refused"
	// NoEndpointsRefusedOnNode: so are processes of a node at the external addresses of the Service.
	NoEndpointsRefusedOnNode Feature = "no-endpoints-refused-on-node"
	// ExternalIPsGate: an administrator can forbid externalIPs (KEP-5707).
	ExternalIPsGate Feature = "externalips-gate"
	// ClusterIPFromOutside: a client outside that routes the range of ClusterIPs to a node is served.
	ClusterIPFromOutside Feature = "clusterip-from-outside"
	// UnusedClusterIPsDropped: packets to addresses in the range of ClusterIPs that no Service has do not leave the node.
	UnusedClusterIPsDropped Feature = "unused-clusterips-dropped"
	// AffinityTimeout: a client is forgotten once it has made no new connection for timeoutSeconds, whatever connections
	// it has.
	AffinityTimeout Feature = "affinity-timeout"
	// AffinityManyClients: more than a hundred clients of one endpoint are remembered.
	AffinityManyClients Feature = "affinity-many-clients"
	// SourceRanges: loadBalancerSourceRanges are heeded.
	SourceRanges Feature = "source-ranges"
	// HealthCheckBody: the health-check port tells in JSON how many endpoints the node has, and gives it as a weight.
	HealthCheckBody Feature = "healthcheck-body"
	// HealthCheckAccept: the health-check port is reached through an INPUT chain whose policy is DROP.
	HealthCheckAccept Feature = "healthcheck-accept"
	// ProxierHealthz: the proxier tells of its own health on port 10256 (KEP-3836).
	ProxierHealthz Feature = "proxier-healthz"
	// NodePortHeld: a socket of the proxier holds each NodePort, and the first process to bind one has it.
	NodePortHeld Feature = "nodeport-held"
	// UserspacePortals: rules in portal chains lead each Service port to a socket of the proxier.
	UserspacePortals Feature = "userspace-portals"
	// IPTables: programs xtables chains in the shape that kube-proxy documents.
	IPTables Feature = "iptables"
	// IPTablesLegacy: does so through the legacy back end instead of nf_tables.
	IPTablesLegacy Feature = "iptables-legacy"
	// IPVS: programs virtual servers of IPVS, a device kube-ipvs0 and IP sets in the shape that kube-proxy documents.
	IPVS Feature = "ipvs"
	// NFTables: programs an nftables table with verdict maps in the shape that kube-proxy documents.
	NFTables Feature = "nftables"

	// NetworkPolicy: pods that a NetworkPolicy selects are isolated as it says. Who promises this is an enforcer.
	NetworkPolicy Feature = "networkpolicy"
	// PolicyDropLog: before a policy drops a packet, it goes to NFLOG group 1, or 2 if it was the sender's egress rules
	// that denied it, with the prefix "DPI|" or "DPE|" and the pod it was denied to or by, as in "DPI|shop/db". What is
	// longer than the kernel takes (127 bytes; iptables takes 63) is cut off.
	PolicyDropLog Feature = "policy-drop-log"
	// CalicoChains: enforces policies by chains of iptables, bits of the mark and IP sets in the shape that Calico
	// documents.
	CalicoChains Feature = "calico-chains"
)

// The sets that the features of proxiers are made of, and what remains. Every feature is in one of these lists.
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
	// beyond are the features that show how a proxier works, that its command line has beside serving, or that the Service
	// API does not ask for. No proxier is assumed to have them: packets are served either way.
	beyond = []Feature{
		CalicoChains, Cleanup, ClusterIPFromOutside, DialsAgain, ETPLocalShortcut, ExternalIPsGate, HealthCheckAccept,
		HealthCheckBody, IPTables, IPTablesLegacy, IPVS, MasqueradeMark, ModeSwitch, NFTables, NetworkPolicy,
		NoEndpointsRefusedOnNode, NodePortHeld, OutlivesService, PodsByAddress, PolicyDropLog, ProxierHealthz, SelfHealing,
		UDPKeepsLast, UnusedClusterIPsDropped, UserspacePortals,
	}
)

// Core returns what every current proxier promises.
func Core() FeatureSet { return Features(core...) }

// InKernel returns what proxiers promise that have the kernel translate connections.
func InKernel() FeatureSet { return Core().With(inKernel...) }

// ByNetfilter returns what proxiers promise whose translations are rules of netfilter.
func ByNetfilter() FeatureSet { return InKernel().With(byNetfilter...) }

var all = Features(slices.Concat(core, inKernel, byNetfilter, single, beyond)...)

// AllFeatures returns every feature, sorted.
func AllFeatures() []Feature { return all.List() }

// Known reports whether there is a feature of that name.
func (f Feature) Known() bool { return all[f] }

// Assumed returns what a command is assumed to promise if nothing else is declared.
func Assumed() FeatureSet { return all.Without(beyond...) }

// FeatureSet is a set of features.
type FeatureSet map[Feature]bool

// Features returns the set of some features.
func Features(fs ...Feature) FeatureSet {
	set := FeatureSet{}
	for _, f := range fs {
		set[f] = true
	}
	return set
}

// Missing returns the features of need that the set lacks, sorted.
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

// List returns the set, sorted.
func (s FeatureSet) List() []Feature { return slices.Sorted(maps.Keys(s)) }

// With returns the set with further features.
func (s FeatureSet) With(fs ...Feature) FeatureSet {
	set := maps.Clone(s)
	for _, f := range fs {
		set[f] = true
	}
	return set
}

// Without returns the set without some features.
func (s FeatureSet) Without(fs ...Feature) FeatureSet {
	set := maps.Clone(s)
	for _, f := range fs {
		delete(set, f)
	}
	return set
}
