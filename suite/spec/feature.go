package spec

import (
	"maps"
	"slices"
)

// Feature is a named promise that a proxier may make and a scenario may need.
type Feature string

// The promises. A proxier that lacks one is not judged by the scenarios that need it; where modes differ on purpose, the
// difference is a feature.
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

	// NoEndpointsRefused: clients of a Service that nobody serves are refused.
	NoEndpointsRefused Feature = "no-endpoints-refused"
	// NoEndpointsRefusedOnNode: so are processes of a node at the external addresses of the Service.
	NoEndpointsRefusedOnNode Feature = "no-endpoints-refused-on-node"
	// ExternalIPsGate: an administrator can forbid externalIPs (KEP-5707).
	ExternalIPsGate Feature = "externalips-gate"
	// ClusterIPFromOutside: a client outside that routes the range of ClusterIPs to a node is served.
	ClusterIPFromOutside Feature = "clusterip-from-outside"
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
)

// AllFeatures is every feature that scenarios know, sorted.
var AllFeatures = []Feature{
	ClusterIP, ClusterIPFromOutside, ConntrackCleanupUDP, DropInvalid, ETPLocal, ExternalIPs, ExternalIPsGate, ForwardAccept, Hairpin,
	HealthCheckAccept, HealthCheckBody, HealthCheckNodePort,
	IPTables, IPTablesLegacy, IPVS, ITPLocal, KernelNAT, LoadBalancer, MasqueradeMark, NFTables, NoEndpointsRefused,
	NoEndpointsRefusedOnNode, NodePort,
	NodePortAnyLocalAddress, NodePortHeld, NodePortLocalhost, NodePortPrecedence, ProxierHealthz, RandomSpread, SessionAffinity, SourceAddress, SourceRanges,
	TerminatingFallback, Topology, UserspacePortals, VirtualIP,
}

// Mechanisms are the features that tell how a proxier works. Nobody is taken to have them: packets are served either way.
var Mechanisms = []Feature{IPTables, IPTablesLegacy, IPVS, MasqueradeMark, NFTables, NodePortHeld, UserspacePortals}

// FeatureSet is a set of features.
type FeatureSet map[Feature]bool

// Features builds a set.
func Features(fs ...Feature) FeatureSet {
	set := FeatureSet{}
	for _, f := range fs {
		set[f] = true
	}
	return set
}

// Missing lists what of need the set lacks, sorted.
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

// List is the set in order.
func (s FeatureSet) List() []Feature { return slices.Sorted(maps.Keys(s)) }
