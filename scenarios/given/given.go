// SPDX-License-Identifier: Apache-2.0

// Package given holds the words scenarios use to say what a cluster contains and how it changes. Every word makes an
// ordinary Kubernetes object, or changes one.
package given

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Namespace is a further namespace of the scenario. Its name begins with the scenario's id, so that no other has it.
func Namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
	}
}

// In puts the pod into another namespace than the scenario's first one.
func In(namespace string) PodOption {
	return func(p *corev1.Pod) { p.Namespace = namespace }
}

// Labelled sets a label of the pod.
func Labelled(key, value string) PodOption {
	return func(p *corev1.Pod) { p.Labels[key] = value }
}

// PodOption changes a pod before it is stored.
type PodOption func(*corev1.Pod)

// Pod is a pod on a node. Without options it serves nothing: it is a client.
func Pod(name, node string, options ...PodOption) *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pod": name}},
		Spec: corev1.PodSpec{
			NodeName:   node,
			Containers: []corev1.Container{{Name: "echo", Image: "echo"}},
		},
	}
	for _, o := range options {
		o(p)
	}
	return p
}

// Backend is a pod with the label app=web that serves TCP on 8080.
func Backend(name, node string, options ...PodOption) *corev1.Pod {
	return Pod(name, node, append([]PodOption{App("web"), TCP(8080)}, options...)...)
}

// App sets the label that Service selects by.
func App(app string) PodOption {
	return func(p *corev1.Pod) { p.Labels["app"] = app }
}

// TCP makes the pod serve a TCP port.
func TCP(port int32) PodOption { return serves("", port, corev1.ProtocolTCP) }

// UDP makes the pod serve a UDP port.
func UDP(port int32) PodOption { return serves("", port, corev1.ProtocolUDP) }

// Named makes the pod serve a TCP port that has a name.
func Named(name string, port int32) PodOption { return serves(name, port, corev1.ProtocolTCP) }

func serves(name string, port int32, proto corev1.Protocol) PodOption {
	return func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.Ports = append(c.Ports, corev1.ContainerPort{Name: name, ContainerPort: port, Protocol: proto})
	}
}

// HostNetwork puts the pod into its node's own network.
func HostNetwork() PodOption {
	return func(p *corev1.Pod) { p.Spec.HostNetwork = true }
}

// ServiceOption changes a Service before it is stored.
type ServiceOption func(*corev1.Service)

// Service selects the pods with the label app=name and, without options, serves TCP port 80 from their port 8080.
func Service(name string, options ...ServiceOption) *corev1.Service {
	s := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": name}},
	}
	for _, o := range options {
		o(s)
	}
	if len(s.Spec.Ports) == 0 && s.Spec.Type != corev1.ServiceTypeExternalName {
		Port(80, 8080)(s)
	}
	return s
}

// Port adds a TCP port and the pods' port that serves it.
func Port(port int32, target int) ServiceOption {
	return ServicePort("", corev1.ProtocolTCP, port, target)
}

// UDPPort adds a UDP port and the pods' port that serves it.
func UDPPort(port int32, target int) ServiceOption {
	return ServicePort("", corev1.ProtocolUDP, port, target)
}

// ServicePort adds a port with a name. An empty name is replaced by one made of protocol and port as soon as the
// Service has several ports, which must have names.
func ServicePort(name string, proto corev1.Protocol, port int32, target int) ServiceOption {
	return func(s *corev1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Name: name, Protocol: proto, Port: port, TargetPort: intstr.FromInt(target),
		})
		if len(s.Spec.Ports) == 1 {
			return
		}
		for i := range s.Spec.Ports {
			p := &s.Spec.Ports[i]
			if p.Name == "" {
				p.Name = strings.ToLower(fmt.Sprintf("%s-%d", p.Protocol, p.Port))
			}
		}
	}
}

// NodePort makes the Service one of type NodePort.
func NodePort() ServiceOption {
	return func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort }
}

// LoadBalancer makes the Service one of type LoadBalancer.
func LoadBalancer() ServiceOption {
	return func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer }
}

// ETPLocal sets externalTrafficPolicy Local.
func ETPLocal() ServiceOption {
	return func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }
}

// ITPLocal sets internalTrafficPolicy Local.
func ITPLocal() ServiceOption {
	return func(s *corev1.Service) {
		local := corev1.ServiceInternalTrafficPolicyLocal
		s.Spec.InternalTrafficPolicy = &local
	}
}

// Affinity sets sessionAffinity ClientIP.
func Affinity() ServiceOption {
	return func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }
}

// Selecting makes the Service select the pods of another app, or none at all if app is empty.
func Selecting(app string) ServiceOption {
	return func(s *corev1.Service) {
		s.Spec.Selector = nil
		if app != "" {
			s.Spec.Selector = map[string]string{"app": app}
		}
	}
}

// ExternalName makes the Service an alias of a DNS name.
func ExternalName(name string) ServiceOption {
	return func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeExternalName
		s.Spec.ExternalName = name
		s.Spec.Selector = nil
	}
}

// ExternalIPs sets spec.externalIPs: addresses that nobody owns, one for each family. A Service of one family keeps its
// own alone.
func ExternalIPs(ips ...string) ServiceOption {
	return func(s *corev1.Service) { s.Spec.ExternalIPs = ips }
}
