// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func nodeCells(n *corev1.Node) []any {
	info := n.Status.NodeInfo
	kernel := cmp.Or(info.KernelVersion, unknown)
	if info.Architecture != "" {
		kernel += " (" + info.Architecture + ")"
	}
	return []any{
		n.Name, nodeStatus(n), nodeRoles(n), age(n), info.KubeletVersion,
		nodeAddress(n, corev1.NodeInternalIP), nodeAddress(n, corev1.NodeExternalIP),
		cmp.Or(info.OSImage, unknown), kernel, cmp.Or(info.ContainerRuntimeVersion, unknown),
	}
}

func nodeStatus(n *corev1.Node) string {
	out := "Unknown"
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out = "NotReady"
			if c.Status == corev1.ConditionTrue {
				out = "Ready"
			}
		}
	}
	if n.Spec.Unschedulable {
		out += ",SchedulingDisabled"
	}
	return out
}

func nodeRoles(n *corev1.Node) string {
	var out []string
	for k, v := range n.Labels {
		if role, ok := strings.CutPrefix(k, "node-role.kubernetes.io/"); ok && role != "" {
			out = append(out, role)
		} else if k == "kubernetes.io/role" && v != "" {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return orNone(strings.Join(out, ","))
}

func nodeAddress(n *corev1.Node, t corev1.NodeAddressType) string {
	for _, a := range n.Status.Addresses {
		if a.Type == t {
			return a.Address
		}
	}
	return none
}

func serviceCells(s *corev1.Service) []any {
	clusterIP := none
	if len(s.Spec.ClusterIPs) > 0 {
		clusterIP = s.Spec.ClusterIPs[0]
	}
	var ports []string
	for _, p := range s.Spec.Ports {
		node := ""
		if p.NodePort > 0 {
			node = fmt.Sprintf(":%d", p.NodePort)
		}
		ports = append(ports, fmt.Sprintf("%d%s/%s", p.Port, node, p.Protocol))
	}
	return []any{
		s.Name, string(s.Spec.Type), clusterIP, externalAddresses(s), orNone(strings.Join(ports, ",")), age(s),
		labels.FormatLabels(s.Spec.Selector),
	}
}

func externalAddresses(s *corev1.Service) string {
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return s.Spec.ExternalName
	}
	var out []string
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		for _, in := range s.Status.LoadBalancer.Ingress {
			out = append(out, cmp.Or(in.IP, in.Hostname))
		}
		slices.Sort(out)
		out = slices.Compact(out)
	}
	out = append(out, s.Spec.ExternalIPs...)
	if len(out) == 0 && s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		return "<pending>"
	}
	return orNone(strings.Join(out, ","))
}

func endpointsCells(e *corev1.Endpoints) []any {
	if len(e.Subsets) == 0 {
		return []any{e.Name, none, age(e)}
	}
	var all []string
	for _, s := range e.Subsets {
		for _, a := range s.Addresses {
			if len(s.Ports) == 0 {
				all = append(all, a.IP)
			}
		}
		for _, p := range s.Ports {
			for _, a := range s.Addresses {
				all = append(all, net.JoinHostPort(a.IP, strconv.Itoa(int(p.Port))))
			}
		}
	}
	return []any{e.Name, few(all), age(e)}
}

func sliceCells(s *discoveryv1.EndpointSlice) []any {
	var ports, addresses []string
	for _, p := range s.Ports {
		switch {
		case p.Port != nil:
			ports = append(ports, strconv.Itoa(int(*p.Port)))
		case p.Name != nil:
			ports = append(ports, *p.Name)
		default:
			ports = append(ports, "*")
		}
	}
	for _, e := range s.Endpoints {
		addresses = append(addresses, e.Addresses...)
	}
	return []any{s.Name, string(s.AddressType), cmp.Or(few(ports), unset), cmp.Or(few(addresses), unset), age(s)}
}
