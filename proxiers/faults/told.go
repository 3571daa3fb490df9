package faults

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab/kube"
)

// told are faults in what proxiers are told.
var told = slices.Concat(toldOfServices, toldOfEndpoints)

var toldOfServices = []Fault{
	{
		Name: "nodeport-off-by-one", Breaks: "NodePorts are served on the port after the one that was given.",
		Rows:  []string{"nodeport-every-node", "nodeport-node-with-endpoint", "nodeport-any-local-address", "nodeport-has-clusterip", "base-ip-forward", "pb-proxier-holds-nodeport", "nodeport-single-nat-hop"},
		State: eachServicePort(func(p *corev1.ServicePort) { p.NodePort += min(p.NodePort, 1) }),
	},
	{
		Name: "udp-ports-lost", Breaks: "Ports of Services that are not TCP are passed over.",
		Rows: []string{"udp-clusterip-and-nodeport", "clusterip-same-port-tcp-udp", "ep-add-remove"},
		State: services(func(s *corev1.Service) {
			s.Spec.Ports = slices.DeleteFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Protocol != corev1.ProtocolTCP })
		}),
	},
	{
		Name: "second-family-lost", Breaks: "Services are served in their first IP family alone.",
		Rows: []string{"clusterip-pod-to-remote-pod", "clusterip-every-node", "clusterip-reply-from-vip"},
		State: services(func(s *corev1.Service) {
			if len(s.Spec.ClusterIPs) > 1 {
				s.Spec.ClusterIPs, s.Spec.IPFamilies = s.Spec.ClusterIPs[:1], s.Spec.IPFamilies[:1]
			}
		}),
	},
	{
		Name: "external-ips-lost", Breaks: "The addresses of spec.externalIPs are not served.",
		Rows:  []string{"etp-local-no-endpoint-drops"},
		State: services(func(s *corev1.Service) { s.Spec.ExternalIPs = nil }),
	},
	{
		Name: "load-balancer-ips-lost", Breaks: "The addresses of load balancers are not served.",
		Rows:  []string{"etp-local-host-shortcut"},
		State: services(func(s *corev1.Service) { s.Status.LoadBalancer.Ingress = nil }),
	},
	{
		Name: "source-ranges-lost", Breaks: "Everybody is let in, whatever spec.loadBalancerSourceRanges says.",
		On: kubeChains, Rows: []string{"rs-ipt-drop-path"},
		State: services(func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = nil }),
	},
	{
		Name: "health-check-port-lost", Breaks: "Health-check ports are not opened.",
		Rows:  []string{"etp-local-lb-only-healthy-nodes"},
		State: services(func(s *corev1.Service) { s.Spec.HealthCheckNodePort = 0 }),
	},
	{
		Name: "external-policy-ignored", Breaks: "Outside traffic goes to all endpoints under externalTrafficPolicy Local too.",
		Rows: []string{"etp-local-source-preserved", "etp-local-only-local-endpoints", "etp-local-no-endpoint-drops", "etp-local-imbalance", "rs-ipt-local-policy-chains"},
		State: services(func(s *corev1.Service) {
			if s.Spec.ExternalTrafficPolicy != "" {
				s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
			}
		}),
	},
	{
		Name: "external-policy-always-local", Breaks: "Outside traffic goes to local endpoints alone, whatever the policy is.",
		Rows: []string{"nodeport-every-node"},
		State: services(func(s *corev1.Service) {
			if s.Spec.ExternalTrafficPolicy != "" {
				s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
			}
		}),
	},
	{
		Name: "internal-policy-always-local", Breaks: "Traffic to a ClusterIP goes to endpoints of the client's node alone, whatever the policy is.",
		Rows: []string{"clusterip-pod-to-remote-pod", "etp-local-clusterip-unaffected", "clusterip-every-node"},
		State: services(func(s *corev1.Service) {
			s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
		}),
	},
	{
		Name: "affinity-ignored", Breaks: "Clients are not remembered.",
		Rows: []string{"affinity-clusterip", "affinity-nodeport", "affinity-toggle"},
		State: services(func(s *corev1.Service) {
			s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
		}),
	},
	{
		Name: "affinity-always", Breaks: "Clients are remembered though no Service asks for it.",
		Rows: []string{"affinity-toggle", "clusterip-spread"},
		State: services(func(s *corev1.Service) {
			s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(corev1.DefaultClientIPServiceAffinitySeconds)},
			}
		}),
	},
	{
		Name: "service-updates-ignored", Breaks: "A Service is served as it was at first.",
		Rows: []string{"affinity-toggle", "svc-externalname-transitions"},
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

var toldOfEndpoints = []Fault{
	{
		Name: "endpoint-forgotten", Breaks: "The last endpoint of each EndpointSlice is overlooked.",
		Rows: []string{"clusterip-spread", "nodeport-every-node"},
		State: slicesOf(func(s *discoveryv1.EndpointSlice) {
			s.Endpoints = s.Endpoints[:max(len(s.Endpoints)-1, 0)]
		}),
	},
	{
		Name: "first-endpoint-alone", Breaks: "Of each EndpointSlice the first endpoint gets everything.",
		Rows:  []string{"clusterip-spread"},
		State: slicesOf(func(s *discoveryv1.EndpointSlice) { s.Endpoints = s.Endpoints[:min(len(s.Endpoints), 1)] }),
	},
	{
		Name: "target-port-off-by-one", Breaks: "Endpoints are sought on the port after theirs.",
		Rows: []string{"clusterip-target-port-rewrite"},
		State: slicesOf(func(s *discoveryv1.EndpointSlice) {
			for i := range s.Ports {
				s.Ports[i].Port = ptr.To(*s.Ports[i].Port + 1)
			}
		}),
	},
	{
		Name: "target-ports-swapped", Breaks: "The first and the last port of an EndpointSlice are mixed up.",
		Rows: []string{"clusterip-multiport"},
		State: slicesOf(func(s *discoveryv1.EndpointSlice) {
			if last := len(s.Ports) - 1; last > 0 {
				s.Ports[0].Port, s.Ports[last].Port = s.Ports[last].Port, s.Ports[0].Port
			}
		}),
	},
	{
		Name: "readiness-ignored", Breaks: "Endpoints that are not ready get connections.",
		Rows: []string{"clusterip-one-connection-one-endpoint", "ep-programming-latency"},
		State: eachEndpoint(func(e *discoveryv1.Endpoint) {
			e.Conditions.Ready, e.Conditions.Serving = ptr.To(true), ptr.To(true)
		}),
	},
	{
		Name: "locality-unknown", Breaks: "No endpoint is known to be on any node.",
		Rows:  []string{"etp-local-only-local-endpoints"},
		State: eachEndpoint(func(e *discoveryv1.Endpoint) { e.NodeName = nil }),
	},
	{
		Name: "manual-slices-ignored", Breaks: "EndpointSlices that were not made by the cluster itself are passed over.",
		Rows: []string{"ep-manual-endpoints", "ep-multiple-slices"},
		State: see(func(o kube.Object) kube.Object {
			if _, ok := o.(*discoveryv1.EndpointSlice); ok && o.GetLabels()[discoveryv1.LabelManagedBy] == "" {
				return nil
			}
			return o
		}),
	},
	{
		Name: "departed-endpoints-stay", Breaks: "Endpoints that have left go on getting connections.",
		Rows:  []string{"ep-add-remove"},
		State: remembering(unite),
	},
	{
		Name: "endpoint-updates-ignored", Breaks: "An EndpointSlice is obeyed as it was at first.",
		Rows: []string{"ep-add-remove"},
		State: remembering(func(first, now *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
			if first == nil {
				return now
			}
			first = first.DeepCopy()
			first.ResourceVersion = now.ResourceVersion
			return first
		}),
	},
}

// unite is the slice as it is, with the endpoints that it had before.
func unite(before, now *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	if before == nil {
		return now
	}
	now = now.DeepCopy()
	for _, e := range before.Endpoints {
		if !slices.ContainsFunc(now.Endpoints, func(o discoveryv1.Endpoint) bool { return o.Addresses[0] == e.Addresses[0] }) {
			now.Endpoints = append(now.Endpoints, e)
		}
	}
	return now
}
