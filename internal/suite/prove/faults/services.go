// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/internal/proxiers/nodeaddr"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/suite/spec"
)

// stateFaults break the configuration and the state that proxiers get.
var stateFaults = slices.Concat(configFaults, nodeFaults, serviceFaults, endpointFaults, partialFaults, missedFaults,
	policyFaults)

// configFaults break the administrator's settings.
var configFaults = []Fault{
	{Name: "configuration-ignored", Description: "Everything is at its default, whatever an administrator has set.",
		Config: func(c *spec.ProxyConfig) { *c = spec.ProxyConfig{} }},
	{Name: "nodeport-addresses-ignored",
		Description: "NodePorts are on all addresses, although an administrator wants them on some.",
		// kube-proxy's nftables mode serves them on the primary addresses by default
		Proxiers: slices.Concat(kubeChains, virtualServers, []string{"nftables", "userspace"}),
		Config:   func(c *spec.ProxyConfig) { c.NodePortAddresses, c.NodePortsOnPrimary = nil, false }},
	{Name: "family-without-range-unlimited", BothFamilies: true,
		Description: "NodePorts are on all addresses of a family of which nodePortAddresses has no range.",
		// kube-proxy has this fault
		Proxiers: builtIn, Config: func(c *spec.ProxyConfig) {
			if len(c.NodePortAddresses) > 0 && len(nodeaddr.OfFamily(c.NodePortAddresses, lab.V4)) == 0 {
				c.NodePortAddresses = append(slices.Clone(c.NodePortAddresses), netip.MustParsePrefix("0.0.0.0/0"))
			}
		}},
	{Name: "healthz-address-ignored",
		Description: "A proxier tells its health on all addresses, although an administrator wants it on one.",
		Config: func(c *spec.ProxyConfig) {
			if c.HealthzAddress.IsValid() {
				c.HealthzAddress = netip.AddrPortFrom(netip.IPv4Unspecified(), c.HealthzAddress.Port())
			}
		}},
	{Name: "min-sync-period-ignored",
		Description: "The pause between two changes of rules is the default, whatever an administrator says.",
		Config:      func(c *spec.ProxyConfig) { c.MinSyncPeriod = nil }},
	{Name: "taken-ports-tolerated",
		Description: "A proxier without its ports for metrics and health goes on, in spite of bindAddressHardFail.",
		Config:      func(c *spec.ProxyConfig) { c.BindHardFail = false }},
	{Name: "taken-ports-fatal", Ends: true,
		Description: "A proxier ends if another process has its port for metrics or health, without " +
			"bindAddressHardFail.",
		Config: func(c *spec.ProxyConfig) { c.BindHardFail = true }},
	{Name: "masquerade-all-ignored",
		Description: "Service traffic keeps its source, although an administrator wants all of it to come from the node.",
		// relays always do it
		Proxiers: slices.Concat(kubeRules, virtualServers), Config: func(c *spec.ProxyConfig) { c.MasqueradeAll = false }},
}

var nodeFaults = []Fault{
	{Name: "taints-lost", Description: "The taint of a node that is about to be deleted is not seen.",
		State: each(func(n *corev1.Node) { n.Spec.Taints = nil })},
}

var serviceFaults = []Fault{
	{Name: "nodeport-off-by-one", Description: "NodePorts are served on the port after the one that was given.",
		State: each(func(s *corev1.Service) {
			for i := range s.Spec.Ports {
				s.Spec.Ports[i].NodePort += min(s.Spec.Ports[i].NodePort, 1)
			}
		})},
	{Name: "udp-ports-lost", Description: "Ports of Services that are not TCP are passed over.",
		State: each(func(s *corev1.Service) {
			s.Spec.Ports = slices.DeleteFunc(s.Spec.Ports,
				func(p corev1.ServicePort) bool { return p.Protocol != corev1.ProtocolTCP })
		})},
	{Name: "sctp-ports-lost", Description: "Ports of Services with the protocol SCTP are passed over.",
		State: each(func(s *corev1.Service) {
			s.Spec.Ports = slices.DeleteFunc(s.Spec.Ports,
				func(p corev1.ServicePort) bool { return p.Protocol == corev1.ProtocolSCTP })
		})},
	{Name: "second-family-lost", Description: "Services are served in their first IP family alone.", BothFamilies: true,
		State: each(func(s *corev1.Service) {
			if len(s.Spec.ClusterIPs) > 1 {
				s.Spec.ClusterIPs, s.Spec.IPFamilies = s.Spec.ClusterIPs[:1], s.Spec.IPFamilies[:1]
			}
		})},
	{Name: "external-ips-lost", Description: "The addresses of spec.externalIPs are not served.",
		State: each(func(s *corev1.Service) { s.Spec.ExternalIPs = nil })},
	{Name: "load-balancer-ips-lost", Description: "The addresses of load balancers are not served.",
		State: each(func(s *corev1.Service) { s.Status.LoadBalancer.Ingress = nil })},
	{Name: "source-ranges-lost", Description: "All clients are accepted, whatever spec.loadBalancerSourceRanges is.",
		State: each(func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = nil })},
	{Name: "health-check-port-lost", Description: "Health-check ports are not opened.",
		State: each(func(s *corev1.Service) { s.Spec.HealthCheckNodePort = 0 })},
	{Name: "external-policy-ignored",
		Description: "Outside traffic goes to all endpoints under externalTrafficPolicy Local too.",
		State: each(func(s *corev1.Service) {
			if s.Spec.ExternalTrafficPolicy != "" {
				s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
			}
		})},
	{Name: "external-policy-always-local",
		Description: "Outside traffic goes to local endpoints alone, whatever the policy is.",
		State: each(func(s *corev1.Service) {
			if s.Spec.ExternalTrafficPolicy != "" {
				s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
			}
		})},
	{Name: "internal-policy-always-local",
		Description: "Traffic to a ClusterIP goes to endpoints of the client's node alone, whatever the policy is.",
		State: each(func(s *corev1.Service) {
			s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
		})},
	{Name: "internal-policy-follows-external",
		Description: "Under externalTrafficPolicy Local, a ClusterIP leads to endpoints of the client's node alone.",
		// Where a node has no endpoint, the ipvs mode takes those of other nodes if the Service has a NodePort.
		Except: []string{"kube-proxy-ipvs"},
		State: each(func(s *corev1.Service) {
			if s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
				s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
			}
		})},
	{Name: "internal-policy-ignored",
		Description: "Traffic to a ClusterIP goes to all endpoints under internalTrafficPolicy Local too.",
		State: each(func(s *corev1.Service) {
			s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyCluster)
		})},
	{Name: "proxy-mode-ignored", Description: "A load balancer's address is served though its ipMode is Proxy.",
		State: each(func(s *corev1.Service) {
			for i := range s.Status.LoadBalancer.Ingress {
				s.Status.LoadBalancer.Ingress[i].IPMode = ptr.To(corev1.LoadBalancerIPModeVIP)
			}
		})},
	{Name: "proxy-name-ignored", Description: "Services that are labelled as another proxier's are served.",
		// Slices inherit the labels of their Services.
		State: stateless(func(o store.Object) store.Object {
			const label = "service.kubernetes.io/service-proxy-name"
			if _, labelled := o.GetLabels()[label]; !labelled {
				return o
			}
			changed := o.(runtime.Object).DeepCopyObject().(store.Object)
			delete(changed.GetLabels(), label)
			return changed
		})},
	{Name: "affinity-timeout-ignored", Description: "Clients are remembered for three hours, whatever the timeout is.",
		State: each(func(s *corev1.Service) {
			if c := s.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil {
				c.ClientIP.TimeoutSeconds = ptr.To(corev1.DefaultClientIPServiceAffinitySeconds)
			}
		})},
	{Name: "affinity-ignored", Description: "Clients are not remembered.",
		State: each(func(s *corev1.Service) {
			s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
		})},
	{Name: "affinity-for-tcp-alone", Description: "Clients of Services without a TCP port are not remembered.",
		// Relays and the IPVS of kube-proxy remember the flow itself for a while.
		Proxiers: slices.Concat(kubeRules, []string{"ipvs"}),
		State: each(func(s *corev1.Service) {
			tcp := func(p corev1.ServicePort) bool { return p.Protocol == corev1.ProtocolTCP }
			if !slices.ContainsFunc(s.Spec.Ports, tcp) {
				s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
			}
		})},
	{Name: "affinity-always", Description: "Clients are remembered though no Service asks for it.",
		State: each(func(s *corev1.Service) {
			s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(corev1.DefaultClientIPServiceAffinitySeconds)},
			}
		})},
	{Name: "classes-passed-over", Description: "Services that name the class of their load balancer are passed over.",
		State: stateless(func(o store.Object) store.Object {
			if s, ok := o.(*corev1.Service); ok && s.Spec.LoadBalancerClass != nil {
				return nil
			}
			return o
		})},
	{Name: "app-protocols-passed-over", Description: "Ports that name their application protocol are passed over.",
		State: each(func(s *corev1.Service) {
			s.Spec.Ports = slices.DeleteFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.AppProtocol != nil })
		})},
	{Name: "long-names-stop-all",
		Description: "After a Service with the longest namespace and name no change is made any more.",
		State: stoppingAt(func(o store.Object) bool {
			_, ok := o.(*corev1.Service)
			return ok && len(o.GetNamespace()+o.GetName()) == 2*validation.DNS1035LabelMaxLength
		})},
	{Name: "odd-ingress-stops-all",
		Description: "After a Service whose load balancer has a host name no change is made any more.",
		State: stoppingAt(func(o store.Object) bool {
			s, ok := o.(*corev1.Service)
			return ok && slices.ContainsFunc(s.Status.LoadBalancer.Ingress,
				func(i corev1.LoadBalancerIngress) bool { return i.Hostname != "" })
		})},
	{Name: "service-updates-ignored", Description: "A Service is served as it was at first.",
		State: remembering(asBefore[*corev1.Service])},
}
