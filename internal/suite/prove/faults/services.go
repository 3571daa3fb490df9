// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/suite/spec"
)

// stateFaults break the configuration and the state that proxiers get.
var stateFaults = slices.Concat(configFaults, nodeFaults, serviceFaults, endpointFaults, policyFaults)

// configFaults break what an administrator has configured.
var configFaults = []Fault{
	{
		Name: "configuration-ignored", Breaks: "Everything is at its default, whatever an administrator has set.",
		Scenarios: []string{
			"rs-ipvs-scheduler-dh", "rs-ipvs-scheduler-lc", "rs-ipvs-scheduler-mh", "rs-ipvs-scheduler-nq",
			"rs-ipvs-scheduler-sed", "rs-ipvs-scheduler-sh", "rs-ipvs-scheduler-wlc", "externalip-gate-off",
		},
		Config: func(c *spec.ProxyConfig) { *c = spec.ProxyConfig{} },
	},
	{
		Name: "nodeport-addresses-ignored", Breaks: "NodePorts are on all addresses, although an administrator wants them " +
			"on some.",
		// kube-proxy's nftables mode has them on some by default
		On:        slices.Concat(kubeChains, virtualServers, []string{"nftables", "userspace"}),
		Scenarios: []string{"nodeport-address-filter"},
		Config:    func(c *spec.ProxyConfig) { c.NodePortAddresses = nil },
	},
	{
		Name: "masquerade-all-ignored", Breaks: "Service traffic keeps its source, although an administrator wants all of " +
			"it to come from the node.",
		// relays cannot but do it
		On: slices.Concat(kubeRules, virtualServers), Scenarios: []string{"clusterip-masquerade-all"},
		Config: func(c *spec.ProxyConfig) { c.MasqueradeAll = false },
	},
}

// nodeFaults break what proxiers see of Nodes.
var nodeFaults = []Fault{
	{
		Name: "taints-lost", Breaks: "Nobody learns that a node is about to be deleted.",
		Scenarios: []string{"hc-proxier-health"},
		State:     copied(func(n *corev1.Node) { n.Spec.Taints = nil }),
	},
}

// serviceFaults break what proxiers see of Services.
var serviceFaults = []Fault{
	{
		Name: "nodeport-off-by-one", Breaks: "NodePorts are served on the port after the one that was given.",
		Scenarios: []string{
			"nodeport-every-node", "nodeport-address-filter", "nodeport-node-with-endpoint", "nodeport-any-local-address",
			"nodeport-has-clusterip",
			"base-ip-forward", "pb-proxier-holds-nodeport", "nodeport-single-nat-hop", "nodeport-from-host",
			"nodeport-from-pod", "nodeport-update", "nodeport-late-address", "nodeport-remote-node-not-captured",
			"etp-local-pod-to-other-node", "ds-both-vips", "ds-families-independent", "ds-single-stack-service",
			"v6-masquerade-scope", "pb-hostport-coexistence", "pb-listener-gets-port-back", "pb-nodeport-beats-listener",
			"pb-proxier-dead-listener",
		},
		State: eachServicePort(func(p *corev1.ServicePort) { p.NodePort += min(p.NodePort, 1) }),
	},
	{
		Name: "udp-ports-lost", Breaks: "Ports of Services that are not TCP are passed over.",
		Scenarios: []string{
			"udp-clusterip-and-nodeport", "clusterip-same-port-tcp-udp", "ep-add-remove", "ct-udp-no-endpoints-keeps-entries",
			"ct-udp-targetport-change", "ct-udp-zero-to-one", "dns-vip-udp-and-tcp", "dns-headless-records",
			"v6-icmpv6-and-frag", "v6-parity", "masq-port-collisions", "sctp-clusterip-nodeport", "sctp-etp-local-source",
			"sctp-multihoming-limits", "udp-flow-stickiness", "udp-large-and-fragmented", "udp-unconnected-socket",
		},
		State: services(func(s *corev1.Service) {
			s.Spec.Ports = slices.DeleteFunc(s.Spec.Ports,
				func(p corev1.ServicePort) bool { return p.Protocol != corev1.ProtocolTCP })
		}),
	},
	{
		Name: "second-family-lost", Breaks: "Services are served in their first IP family alone.",
		Scenarios: []string{"clusterip-pod-to-remote-pod", "clusterip-every-node", "clusterip-reply-from-vip",
			"np-default-open"},
		State: services(func(s *corev1.Service) {
			if len(s.Spec.ClusterIPs) > 1 {
				s.Spec.ClusterIPs, s.Spec.IPFamilies = s.Spec.ClusterIPs[:1], s.Spec.IPFamilies[:1]
			}
		}),
	},
	{
		Name: "external-ips-lost", Breaks: "The addresses of spec.externalIPs are not served.",
		Scenarios: []string{
			"etp-local-no-endpoint-drops", "sec-externalip-hijack", "externalip-not-on-any-node", "externalip-on-node",
			"externalip-shared-and-removed", "externalip-etp-local",
		},
		State: services(func(s *corev1.Service) { s.Spec.ExternalIPs = nil }),
	},
	{
		Name: "load-balancer-ips-lost", Breaks: "The addresses of load balancers are not served.",
		Scenarios: []string{
			"etp-local-host-shortcut", "lb-vip-any-node", "lb-vip-from-external", "lb-vip-shortcut-in-cluster",
			"lb-without-nodeports", "lb-status-changes", "sr-does-not-cover", "lb-foreign-port-untouched",
			"itp-local-not-external",
		},
		State: services(func(s *corev1.Service) { s.Status.LoadBalancer.Ingress = nil }),
	},
	{
		Name: "source-ranges-lost", Breaks: "Everybody is let in, whatever spec.loadBalancerSourceRanges says.",
		Scenarios: []string{
			"rs-ipt-drop-path", "sr-allow-deny", "sr-any-and-format", "sr-pod-clients", "sr-runtime-change", "sr-node-client",
		},
		State: services(func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = nil }),
	},
	{
		Name: "health-check-port-lost", Breaks: "Health-check ports are not opened.",
		Scenarios: []string{"etp-local-lb-only-healthy-nodes"},
		State:     services(func(s *corev1.Service) { s.Spec.HealthCheckNodePort = 0 }),
	},
	{
		Name: "external-policy-ignored", Breaks: "Outside traffic goes to all endpoints under externalTrafficPolicy Local " +
			"too.",
		Scenarios: []string{
			"etp-local-source-preserved", "etp-local-only-local-endpoints", "etp-local-no-endpoint-drops",
			"etp-local-imbalance", "rs-ipt-local-policy-chains", "etp-local-toggle", "etp-local-endpoint-moves",
			"itp-and-etp-local",
		},
		State: services(func(s *corev1.Service) {
			if s.Spec.ExternalTrafficPolicy != "" {
				s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
			}
		}),
	},
	{
		Name: "external-policy-always-local", Breaks: "Outside traffic goes to local endpoints alone, whatever the policy " +
			"is.",
		Scenarios: []string{"nodeport-every-node", "nodeport-egress-not-hijacked", "nodeport-wrong-pairing"},
		State: services(func(s *corev1.Service) {
			if s.Spec.ExternalTrafficPolicy != "" {
				s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
			}
		}),
	},
	{
		Name: "internal-policy-always-local", Breaks: "Traffic to a ClusterIP goes to endpoints of the client's node " +
			"alone, whatever the policy is.",
		Scenarios: []string{
			"clusterip-pod-to-remote-pod", "etp-local-clusterip-unaffected", "clusterip-every-node", "rs-delta-minimal",
			"rs-delta-minimal-nft",
		},
		State: services(func(s *corev1.Service) {
			s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
		}),
	},
	{
		Name: "internal-policy-ignored", Breaks: "Traffic to a ClusterIP goes to all endpoints under " +
			"internalTrafficPolicy Local too.",
		Scenarios: []string{"itp-local-uses-local", "itp-local-none-drops", "itp-toggle", "itp-local-host-and-hostnetwork"},
		State: services(func(s *corev1.Service) {
			s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyCluster)
		}),
	},
	{
		Name: "proxy-mode-ignored", Breaks: "A load balancer's address is served though its ipMode is Proxy.",
		Scenarios: []string{"lb-ipmode-proxy"},
		State: services(func(s *corev1.Service) {
			for i := range s.Status.LoadBalancer.Ingress {
				s.Status.LoadBalancer.Ingress[i].IPMode = ptr.To(corev1.LoadBalancerIPModeVIP)
			}
		}),
	},
	{
		Name: "proxy-name-ignored", Breaks: "Services that are labelled as another proxier's are served.",
		Scenarios: []string{"svc-proxy-name-label"},
		// Slices have the labels of their Services.
		State: see(func(o store.Object) store.Object {
			const label = "service.kubernetes.io/service-proxy-name"
			if _, labelled := o.GetLabels()[label]; !labelled {
				return o
			}
			changed := o.(runtime.Object).DeepCopyObject().(store.Object)
			delete(changed.GetLabels(), label)
			return changed
		}),
	},
	{
		Name: "affinity-timeout-ignored", Breaks: "Clients are remembered for three hours, whatever the timeout is.",
		Scenarios: []string{"affinity-timeout"},
		State: services(func(s *corev1.Service) {
			if c := s.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil {
				c.ClientIP.TimeoutSeconds = ptr.To(corev1.DefaultClientIPServiceAffinitySeconds)
			}
		}),
	},
	{
		Name: "affinity-ignored", Breaks: "Clients are not remembered.",
		Scenarios: []string{
			"affinity-clusterip", "affinity-nodeport", "affinity-toggle", "affinity-keyed-by-source",
			"affinity-lb-both-policies", "affinity-udp", "affinity-many-clients", "affinity-endpoint-removed",
			"affinity-survives-resync",
		},
		State: services(func(s *corev1.Service) {
			s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
		}),
	},
	{
		Name: "affinity-always", Breaks: "Clients are remembered though no Service asks for it.",
		Scenarios: []string{"affinity-toggle", "clusterip-spread"},
		State: services(func(s *corev1.Service) {
			s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(corev1.DefaultClientIPServiceAffinitySeconds)},
			}
		}),
	},
	{
		Name: "service-updates-ignored", Breaks: "A Service is served as it was at first.",
		Scenarios: []string{
			"affinity-toggle", "svc-externalname-transitions", "svc-delete-recreate", "svc-ports-change",
			"rr-restart-with-drift",
		},
		State: remembering(func(first, now *corev1.Service) *corev1.Service {
			if first == nil {
				return now
			}
			first = first.DeepCopy()
			first.ResourceVersion = now.ResourceVersion
			return first
		}),
	},
}
