// SPDX-License-Identifier: Apache-2.0

package given

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster"
	"github.com/viplab/viplab/lab/cluster/dns"
)

// DNSServer is a pod with the label app=kube-dns that serves the cluster's names.
func DNSServer(name, node string) *corev1.Pod {
	return Pod(name, node, App(dnsService), func(p *corev1.Pod) { p.Spec.Containers[0].Image = cluster.DNSImage })
}

// DNS is the Service of the pods of DNSServer, which the pods of the scenario ask for names.
func DNS() *corev1.Service {
	return Service(dnsService, UDPPort(dns.Port, dns.Port), Port(dns.Port, dns.Port))
}

// dnsService is the name by which pods find their DNS.
const dnsService = "kube-dns"

// Headless gives the Service no ClusterIP.
func Headless() ServiceOption {
	return func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }
}
