// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"maps"
	"regexp"
	"slices"
)

// Feature is the name of a behaviour that a proxier may promise and a scenario may need.
//
// Scenarios of your own may need features of your own. Their names begin with a domain: "example.org/dsr". Their kind
// is Mechanism: proxiers that do not declare them are not judged by these scenarios.
type Feature string

// Kind classifies features by what it means if a proxier lacks one.
type Kind string

// The kinds. A bug of a proxier is not a missing feature: the scenario runs, and an expectation makes its failure
// known.
const (
	// Promise: the Service API promises it. Scenarios that need it are not implemented by a proxier that lacks it.
	Promise Kind = "promise"
	// Option: an authority leaves it to implementations. A proxier offers it or not.
	Option Kind = "option"
	// Mechanism: it is how a proxier works. Scenarios that need it do not apply to other proxiers.
	Mechanism Kind = "mechanism"
)

// Promises: what the Service API requires. Every current proxier has these features.
const (
	ClusterIP           Feature = "clusterip"             // clusterIP:port reaches the endpoints
	NodePort            Feature = "nodeport"              // nodeIP:nodePort reaches the endpoints
	ExternalIPs         Feature = "externalips"           // spec.externalIPs are served
	LoadBalancer        Feature = "loadbalancer"          // status.loadBalancer ingress addresses are served
	ETPLocal            Feature = "etp-local"             // externalTrafficPolicy Local
	ITPLocal            Feature = "itp-local"             // internalTrafficPolicy Local
	SessionAffinity     Feature = "session-affinity"      // sessionAffinity ClientIP
	HealthCheckNodePort Feature = "healthcheck-nodeport"  // HTTP on spec.healthCheckNodePort
	TerminatingFallback Feature = "terminating-endpoints" // terminating ones serve if no endpoint is ready
	SCTP                Feature = "sctp"                  // ports of protocol SCTP are served like those of TCP and UDP

	// SourceAddress: endpoints see the address of a pod that calls a ClusterIP, and under ETP Local that of an outside
	// client.
	SourceAddress Feature = "source-address"
)

// Options: what an authority (Feature.Authority) leaves to implementations.
const (
	// SourceRanges: loadBalancerSourceRanges are enforced.
	SourceRanges Feature = "source-ranges"
	// Topology: traffic distribution and zone hints apply.
	Topology Feature = "topology"
	// NodeHints: hints that name nodes apply, not only those that name zones.
	NodeHints Feature = "node-hints"
	// ServiceProxyName: Services with the label service.kubernetes.io/service-proxy-name are left alone.
	ServiceProxyName Feature = "service-proxy-name"
	// IPMode: nodes and pods send to a load balancer's address of ipMode Proxy as to any stranger's.
	IPMode Feature = "ip-mode"
	// ExternalIPsGate: an administrator can disable spec.externalIPs.
	ExternalIPsGate Feature = "externalips-gate"
	// ClusterIPFromOutside: an outside client that routes the ClusterIP range to a node is served.
	ClusterIPFromOutside Feature = "clusterip-from-outside"
	// UnusedClusterIPsDropped: packets to unassigned addresses in the ClusterIP range do not leave the node.
	UnusedClusterIPsDropped Feature = "unused-clusterips-dropped"
	// NodePortAnyLocalAddress: NodePorts answer on every address of the node, not only its primary one.
	NodePortAnyLocalAddress Feature = "nodeport-any-local-address"
	// PrimaryNodePorts: an administrator can limit NodePorts to the primary addresses of each node.
	PrimaryNodePorts Feature = "primary-nodeports"
	// NodePortAddresses: an administrator can limit NodePorts to some of a node's addresses.
	NodePortAddresses Feature = "nodeport-addresses"
	// NodePortLocalhost: NodePorts answer on 127.0.0.1.
	NodePortLocalhost Feature = "nodeport-localhost"
	// OpensFirewall: the proxier's own traffic passes a FORWARD chain whose policy is DROP, and its health-check ports
	// answer through such an INPUT chain.
	OpensFirewall Feature = "opens-firewall"
	// DropInvalid: packets in conntrack state INVALID do not leave a node untranslated.
	DropInvalid Feature = "drop-invalid"
	// HealthCheckBody: the health-check port reports in JSON the number of the node's endpoints, and gives it as a
	// weight.
	HealthCheckBody Feature = "healthcheck-body"
	// ProxierHealthz: the proxier reports its own health on port 10256, or where an administrator says.
	ProxierHealthz Feature = "proxier-healthz"
	// UDPDrains: a UDP flow stays with an endpoint that gets no new flows, because it terminates or because of a
	// policy, as long as the endpoint serves.
	UDPDrains Feature = "udp-drains"
	// ConntrackTimeouts: the proxier sets how long the node remembers TCP connections.
	ConntrackTimeouts Feature = "conntrack-timeouts"
	// ConntrackSettings: the proxier also sets how long the node remembers UDP flows, and whether segments outside of the
	// window are valid.
	ConntrackSettings Feature = "conntrack-settings"
	// MasqueradeAll: an administrator can have all Service traffic come from the node.
	MasqueradeAll Feature = "masquerade-all"
	// MasqueradeBit: an administrator can choose the bit of the packet mark that requests masquerading.
	MasqueradeBit Feature = "masquerade-bit"
	// Metrics: the proxier serves Prometheus metrics and the name of its mode at an address that an administrator chooses.
	Metrics Feature = "metrics"
	// MinSyncPeriod: an administrator can say how long the proxier waits from one change of its rules to the next, if at
	// all.
	MinSyncPeriod Feature = "min-sync-period"
	// BindHardFail: an administrator can have the proxier end if it cannot open the port of its health or of its metrics.
	BindHardFail Feature = "bind-hard-fail"
	// ConfigFile: an administrator can write the proxier's settings to a file.
	ConfigFile Feature = "config-file"
	// SelfHealing: the proxier restores rules that another program has deleted, without a change of the cluster.
	SelfHealing Feature = "self-healing"
)

// Mechanisms: how proxiers work.
const (
	// InKernel: the kernel serves Services by itself. While the proxier is down, its node continues to serve old and
	// new connections, and a NodePort wins over a process that listens on the same port of the node.
	InKernel Feature = "in-kernel"
	// KernelNAT: translations are entries of the node's conntrack table.
	KernelNAT Feature = "kernel-nat"
	// RandomSpread: the proxier picks an endpoint for each connection independently, with equal probability.
	RandomSpread Feature = "random-spread"
	// VirtualIP: no interface has a ClusterIP as its address, and no node answers ARP for one.
	VirtualIP Feature = "virtual-ip"
	// Relays: connections end in sockets of the proxier, to which portal chains redirect Service ports. It dials
	// another endpoint if one does not accept. A socket holds each NodePort; the first process to bind a port keeps it.
	Relays Feature = "relays"
	// MasqueradeMark: packets to be masqueraded carry the mark 0x4000 until they are.
	MasqueradeMark Feature = "masquerade-mark"
	// IPTables: the proxier programs xtables chains in the shape that kube-proxy documents.
	IPTables Feature = "iptables"
	// IPTablesLegacy: it does so through the legacy back end instead of nf_tables.
	IPTablesLegacy Feature = "iptables-legacy"
	// IPVS: the proxier programs IPVS virtual servers, a device kube-ipvs0 and IP sets in the shape that kube-proxy
	// documents.
	IPVS Feature = "ipvs"
	// IPVSPersistence: virtual servers remember the clients of Services with session affinity (ipvsadm(8), -p).
	IPVSPersistence Feature = "ipvs-persistence"
	// NFTables: the proxier programs an nftables table with verdict maps in the shape that kube-proxy documents.
	NFTables Feature = "nftables"
	// ModeSwitch: the program has another mode, and each mode removes what the other one has left on the node.
	ModeSwitch Feature = "mode-switch"
	// Cleanup: on command, the program removes everything that it programmed.
	Cleanup Feature = "cleanup"

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

var promises = []Feature{
	ClusterIP, NodePort, ExternalIPs, LoadBalancer, ETPLocal, ITPLocal, SessionAffinity, HealthCheckNodePort,
	TerminatingFallback, SCTP, SourceAddress,
}

// The pages that several options have as their authority.
const (
	serviceSpec     = "https://kubernetes.io/docs/reference/kubernetes-api/service-resources/service-v1/#ServiceSpec"
	serviceStatus   = "https://kubernetes.io/docs/reference/kubernetes-api/service-resources/service-v1/#ServiceStatus"
	proxyConfig     = "https://kubernetes.io/docs/reference/config-api/kube-proxy-config.v1alpha1/"
	modeDifferences = "https://kubernetes.io/docs/reference/networking/virtual-ips/" +
		"#migrating-from-iptables-mode-to-nftables"
)

// options gives each option its authority: the page that leaves it to implementations.
var options = map[Feature]string{
	SourceRanges:            serviceSpec,
	Topology:                serviceSpec,
	NodeHints:               "https://kep.k8s.io/3015",
	ServiceProxyName:        "https://kep.k8s.io/2447",
	IPMode:                  serviceStatus,
	ExternalIPsGate:         "https://kep.k8s.io/5707",
	ClusterIPFromOutside:    "https://kubernetes.io/docs/concepts/services-networking/service/#type-clusterip",
	UnusedClusterIPsDropped: "https://github.com/kubernetes/kubernetes/blob/master/pkg/proxy/nftables/README.md",
	NodePortAnyLocalAddress: modeDifferences,
	NodePortLocalhost:       modeDifferences,
	OpensFirewall:           modeDifferences,
	DropInvalid:             modeDifferences,
	HealthCheckBody:         "https://github.com/kubernetes/kubernetes/pull/118999",
	ProxierHealthz:          "https://kep.k8s.io/3836",
	UDPDrains:               "https://kep.k8s.io/1669",
	ConntrackTimeouts:       proxyConfig,
	ConntrackSettings:       proxyConfig,
	PrimaryNodePorts:        proxyConfig,
	NodePortAddresses:       proxyConfig,
	MasqueradeAll:           proxyConfig,
	MasqueradeBit:           proxyConfig,
	Metrics:                 proxyConfig,
	MinSyncPeriod:           proxyConfig,
	BindHardFail:            proxyConfig,
	ConfigFile:              proxyConfig,
	SelfHealing:             proxyConfig,
}

var mechanisms = []Feature{
	InKernel, KernelNAT, RandomSpread, VirtualIP, Relays, MasqueradeMark, IPTables, IPTablesLegacy, IPVS,
	IPVSPersistence, NFTables, ModeSwitch, Cleanup, NetworkPolicy, PolicyDropLog, CalicoChains,
}

// Kind returns the kind of the feature, or "" if the feature is not known.
func (f Feature) Kind() Kind {
	switch {
	case slices.Contains(promises, f):
		return Promise
	case options[f] != "":
		return Option
	case slices.Contains(mechanisms, f), f.own():
		return Mechanism
	default:
		return ""
	}
}

// Authority returns the URL of the page that leaves an option to implementations. It is empty for other features.
func (f Feature) Authority() string { return options[f] }

// Known reports whether the feature is one of those in this package, or a feature of your own (Feature).
func (f Feature) Known() bool { return f.Kind() != "" }

var ownPattern = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)+/[a-z0-9-]+$`)

func (f Feature) own() bool { return ownPattern.MatchString(string(f)) }

// KindOf returns the kind of a scenario that needs these features, and the authorities (URLs) of the options among
// them.
func KindOf(needs []Feature) (Kind, []string) {
	kind, authorities := Promise, []string{}
	for _, f := range needs {
		switch f.Kind() {
		case Mechanism:
			kind = Mechanism
		case Option:
			authorities = append(authorities, f.Authority())
			if kind == Promise {
				kind = Option
			}
		}
	}
	slices.Sort(authorities)
	return kind, slices.Compact(authorities)
}

// Core returns what the Service API promises, and the options that every current proxier offers.
func Core() FeatureSet {
	return Features(promises...).With(
		SourceRanges, Topology, NodeHints, ServiceProxyName, IPMode, ExternalIPsGate, ClusterIPFromOutside,
		HealthCheckBody, ConntrackTimeouts, ConntrackSettings, PrimaryNodePorts, NodePortAddresses, MasqueradeAll,
		Cleanup,
	)
}

// ByKernel returns the features of proxiers that make the kernel translate connections.
func ByKernel() FeatureSet { return Core().With(InKernel, KernelNAT) }

// ByNetfilter returns the features of proxiers whose translations are netfilter rules.
func ByNetfilter() FeatureSet {
	return ByKernel().With(RandomSpread, VirtualIP, UDPDrains)
}

// AllFeatures returns every feature, sorted.
func AllFeatures() []Feature {
	return slices.Sorted(slices.Values(slices.Concat(promises, mechanisms, slices.Collect(maps.Keys(options)))))
}

// DefaultFeatures returns the features that a command is assumed to have if it declares none: all promises, the options
// that concern packets, and a data path in the kernel.
func DefaultFeatures() FeatureSet {
	return ByNetfilter().With(NodePortAnyLocalAddress, NodePortLocalhost, OpensFirewall, DropInvalid).Without(
		ClusterIPFromOutside, ExternalIPsGate, HealthCheckBody, ConntrackTimeouts, ConntrackSettings, PrimaryNodePorts,
		Cleanup)
}

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
