package faults

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// told are faults in what proxiers are told.
var told = []Fault{
	{
		Name: "endpoint-forgotten", Breaks: "The last endpoint of each EndpointSlice is overlooked.",
		Rows: []string{"clusterip-spread", "nodeport-every-node"},
		State: slicesOf(func(s *discoveryv1.EndpointSlice) {
			s.Endpoints = s.Endpoints[:max(len(s.Endpoints)-1, 0)]
		}),
	},
	{
		Name: "target-port-ignored", Breaks: "Endpoints are sought on the port of the Service.",
		Rows: []string{"clusterip-target-port-rewrite"},
		State: slicesOf(func(s *discoveryv1.EndpointSlice) {
			for i := range s.Ports {
				*s.Ports[i].Port++
			}
		}),
	},
	{
		Name: "nodeport-off-by-one", Breaks: "NodePorts are served on the port after the one that was given.",
		Rows: []string{"nodeport-every-node"},
		State: services(func(s *corev1.Service) {
			for i := range s.Spec.Ports {
				if s.Spec.Ports[i].NodePort != 0 {
					s.Spec.Ports[i].NodePort++
				}
			}
		}),
	},
}
