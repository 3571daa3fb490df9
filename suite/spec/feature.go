// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"maps"
	"slices"
)

// Feature is the name of a behaviour that a proxier may promise and a scenario may need.
type Feature string

// The features. A scenario skips proxiers that lack a feature it needs. Where modes differ on purpose, the difference
// is a feature.
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
	// UDPDrains: a UDP flow stays with an endpoint that gets no new flows, because it terminates or because of a
	// policy, as long as the endpoint serves.
	UDPDrains Feature = "udp-drains"
	// NodeHints: hints that name nodes apply, not only those that name zones (KEP-3015).
	NodeHints Feature = "node-hints"
	// DialsAgain: a TCP connection that one endpoint does not accept is offered to another.
	DialsAgain Feature = "dials-again"
	// ResolvesClashes: flows of one client that would be identical after translation, such as those from one port to
	// two Services with the same endpoint, get different source ports.
	ResolvesClashes Feature = "resolves-clashes"
	// LargeFromNode: a process on a node can send datagrams larger than the MTU of the path to the endpoint.
	LargeFromNode Feature = "large-from-node"
	// BridgedFragmentsV6: a pod on a bridge can send IPv6 datagrams larger than the MTU of its own link.
	BridgedFragmentsV6 Feature = "bridged-fragments-v6"
	// ETPLocalShortcut: under ETP Local, a node's own pods and processes reach the endpoints of all nodes, even if this
	// node has one.
	ETPLocalShortcut Feature = "etp-local-shortcut"
	// OutlivesService: an open connection survives the deletion of its Service.
	OutlivesService Feature = "outlives-service"
	// SurvivesRestart: while the proxier is down, its node continues to serve old and new connections.
	SurvivesRestart Feature = "survives-restart"
	// SelfHealing: the proxier restores rules that another program has deleted, without a change of the cluster.
	SelfHealing Feature = "self-healing"

	// PodsByAddress: a sender counts as a pod if its address is in the cluster's pod ranges, whatever interface the
	// packet comes in by (--detect-local-mode=ClusterCIDR).
	PodsByAddress Feature = "pods-by-address"
	// ModeSwitch: the program has another mode, and each mode removes what the other one has left on the node.
	ModeSwitch Feature = "mode-switch"
	// Cleanup: on command, the program removes everything that it programmed.
	Cleanup Feature = "cleanup"
	// ExternalIPsGate: an administrator can disable spec.externalIPs (KEP-5707).
	ExternalIPsGate Feature = "externalips-gate"
	// ClusterIPFromOutside: an outside client that routes the ClusterIP range to a node is served.
	ClusterIPFromOutside Feature = "clusterip-from-outside"
	// UnusedClusterIPsDropped: packets to unassigned addresses in the ClusterIP range do not leave the node.
	UnusedClusterIPsDropped Feature = "unused-clusterips-dropped"
	// AffinityTimeout: affinity ends timeoutSeconds after the client's last new connection, even if older ones are
	// still open.
	AffinityTimeout Feature = "affinity-timeout"
	// AffinityManyClients: affinity holds for more than a hundred clients of one endpoint.
	AffinityManyClients Feature = "affinity-many-clients"
	// SourceRanges: loadBalancerSourceRanges are enforced.
	SourceRanges Feature = "source-ranges"
	// HealthCheckBody: the health-check port reports in JSON the number of the node's endpoints, and gives it as a
	// weight.
	HealthCheckBody Feature = "healthcheck-body"
	// HealthCheckAccept: the health-check port is reachable through an INPUT chain whose policy is DROP.
	HealthCheckAccept Feature = "healthcheck-accept"
	// ProxierHealthz: the proxier reports its own health on port 10256 (KEP-3836).
	ProxierHealthz Feature = "proxier-healthz"
	// NodePortHeld: a socket of the proxier holds each NodePort; the first process to bind a port keeps it.
	NodePortHeld Feature = "nodeport-held"
	// UserspacePortals: rules in portal chains redirect each Service port to a socket of the proxier.
	UserspacePortals Feature = "userspace-portals"
	// IPTables: the proxier programs xtables chains in the shape that kube-proxy documents.
	IPTables Feature = "iptables"
	// IPTablesLegacy: it does so through the legacy back end instead of nf_tables.
	IPTablesLegacy Feature = "iptables-legacy"
	// IPVS: the proxier programs IPVS virtual servers, a device kube-ipvs0 and IP sets in the shape that kube-proxy
	// documents.
	IPVS Feature = "ipvs"
	// NFTables: the proxier programs an nftables table with verdict maps in the shape that kube-proxy documents.
	NFTables Feature = "nftables"

	// NetworkPolicy: pods that a NetworkPolicy selects are isolated as it says. A program with this feature is an
	// enforcer.
	NetworkPolicy Feature = "networkpolicy"
	// PolicyDropLog: before a policy drops a packet, the packet goes to NFLOG group 1, or to group 2 if the sender's
	// egress rules denied it. The prefix is "DPI|" or "DPE|" and the denied receiver or sender, as in "DPI|shop/db".
	// Longer prefixes are cut off at the kernel's limit (127 bytes; 63 for iptables).
	PolicyDropLog Feature = "policy-drop-log"
	// CalicoChains: the enforcer uses iptables chains, mark bits and IP sets in the shape that Calico documents.
	CalicoChains Feature = "calico-chains"
)

// The groups of features that the sets below are made of. Every feature is in one of these lists.
var (
	core = []Feature{
		ClusterIP, NodePort, ExternalIPs, LoadBalancer, ETPLocal, ITPLocal, SessionAffinity, Hairpin, HealthCheckNodePort,
		HealthCheckBody, TerminatingFallback, Topology, NodeHints, SourceRanges, ConntrackCleanupUDP,
		ClusterIPFromOutside, ExternalIPsGate, Cleanup,
	}
	inKernel    = []Feature{KernelNAT, SourceAddress, NodePortPrecedence, SurvivesRestart, SCTP}
	byNetfilter = []Feature{
		RandomSpread, VirtualIP, OutlivesService, UDPDrains, AffinityTimeout, ResolvesClashes, ETPLocalShortcut,
		LargeFromNode, BridgedFragmentsV6, PodsByAddress,
	}
	single = []Feature{
		NodePortAnyLocalAddress, NodePortLocalhost, ForwardAccept, DropInvalid, AffinityManyClients,
	}
	// beyond holds the features that show how a proxier works, that its command line offers beside serving, or that the
	// Service API does not require. Assumed leaves them out: packets are served either way.
	beyond = []Feature{
		CalicoChains, Cleanup, ClusterIPFromOutside, DialsAgain, ETPLocalShortcut, ExternalIPsGate, HealthCheckAccept,
		HealthCheckBody, IPTables, IPTablesLegacy, IPVS, MasqueradeMark, ModeSwitch, NFTables, NetworkPolicy,
		NodePortHeld, OutlivesService, PodsByAddress, PolicyDropLog, ProxierHealthz, SelfHealing,
		UnusedClusterIPsDropped, UserspacePortals,
	}
)

// Core returns the features of every current proxier.
func Core() FeatureSet { return Features(core...) }

// InKernel returns the features of proxiers that make the kernel translate connections.
func InKernel() FeatureSet { return Core().With(inKernel...) }

// ByNetfilter returns the features of proxiers whose translations are netfilter rules.
func ByNetfilter() FeatureSet { return InKernel().With(byNetfilter...) }

var all = Features(slices.Concat(core, inKernel, byNetfilter, single, beyond)...)

// AllFeatures returns every feature, sorted.
func AllFeatures() []Feature { return all.List() }

// Known reports whether the feature exists.
func (f Feature) Known() bool { return all[f] }

// Assumed returns the features that a command is assumed to have if it declares none.
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
