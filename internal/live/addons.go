// SPDX-License-Identifier: Apache-2.0

package live

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab/cluster"
	"github.com/viplab/viplab/lab/cluster/dns"
	"github.com/viplab/viplab/lab/cluster/store"
)

// addons returns what every cluster has before its first user: the DNS, as a pod on any node behind the Service
// kube-dns.
func addons() []store.Object {
	labels := map[string]string{"k8s-app": "kube-dns"}
	port := func(name string, p corev1.Protocol) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Protocol: p, Port: dns.Port}
	}
	dual := corev1.IPFamilyPolicyPreferDualStack
	return []store.Object{
		&corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "coredns", Labels: labels},
			Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "coredns", Image: cluster.DNSImage}},
				DNSPolicy:  corev1.DNSDefault,
			},
		},
		&corev1.Service{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kube-dns", Labels: labels},
			Spec: corev1.ServiceSpec{
				Selector: labels, IPFamilyPolicy: &dual,
				Ports: []corev1.ServicePort{port("dns", corev1.ProtocolUDP), port("dns-tcp", corev1.ProtocolTCP)},
			},
		},
	}
}
