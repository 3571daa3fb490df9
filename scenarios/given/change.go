// SPDX-License-Identifier: Apache-2.0

package given

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/suite/spec"
)

// Terminate begins the graceful end of a pod, which runs on until it is deleted. With serving it stays ready meanwhile.
func Terminate(pod string, serving bool) spec.Action {
	return spec.Action{Name: fmt.Sprintf("terminate pod %s, serving=%t", pod, serving),
		Run: func(_ context.Context, w spec.World) error {
			return w.Store().Terminate(w.Namespace(), pod, serving)
		}}
}

// Zone puts a node into a zone, or into none if zone is empty. Other scenarios would notice: it takes a cluster of its
// own.
func Zone(node, zone string) spec.Action {
	return spec.Action{Name: fmt.Sprintf("node %s is in zone %q", node, zone),
		Run: func(_ context.Context, w spec.World) error {
			return store.Update(w.Store(), "", node, func(n *corev1.Node) {
				delete(n.Labels, corev1.LabelTopologyZone)
				if zone != "" {
					n.Labels[corev1.LabelTopologyZone] = zone
				}
			})
		}}
}

// ApplyAt applies a Service that asks for a ClusterIP: one for each family, of which it takes those that the cluster
// has.
func ApplyAt(s *corev1.Service, v4, v6 string) spec.Action {
	return spec.Action{Name: "apply " + s.Name, Run: func(_ context.Context, w spec.World) error {
		s := s.DeepCopy()
		for _, f := range w.Lab().Stack().Families() {
			s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, map[lab.Family]string{lab.V4: v4, lab.V6: v6}[f])
		}
		s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
		return w.Apply(s)
	}}
}

// IngressAt writes the addresses that a load balancer has given to a Service, of whatever families they are.
func IngressAt(service string, ips ...string) spec.Action {
	return spec.Action{Name: "ingress of Service " + service, Run: func(_ context.Context, w spec.World) error {
		return store.UpdateStatus(w.Store(), w.Namespace(), service, func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress = nil
			for _, ip := range ips {
				mode := corev1.LoadBalancerIPModeVIP
				s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress,
					corev1.LoadBalancerIngress{IP: ip, IPMode: &mode})
			}
		})
	}}
}

// PublishNotReady makes pods endpoints whether they are ready or not.
func PublishNotReady() ServiceOption {
	return func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true }
}

// Prefer sets spec.trafficDistribution.
func Prefer(distribution string) ServiceOption {
	return func(s *corev1.Service) { s.Spec.TrafficDistribution = &distribution }
}

// InFamilies gives the Service these families alone, the primary one first.
func InFamilies(families ...corev1.IPFamily) ServiceOption {
	policy := corev1.IPFamilyPolicySingleStack
	if len(families) > 1 {
		policy = corev1.IPFamilyPolicyRequireDualStack
	}
	return func(s *corev1.Service) { s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = families, &policy }
}

// TargetNamed adds a TCP port that leads to the pods' port of a name.
func TargetNamed(port int32, target string) ServiceOption {
	return func(s *corev1.Service) {
		Port(port, 0)(s)
		s.Spec.Ports[len(s.Spec.Ports)-1].TargetPort = intstr.FromString(target)
	}
}
