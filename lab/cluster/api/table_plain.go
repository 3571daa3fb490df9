// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"
)

func ingressCells(i *networkingv1.Ingress) []any {
	var hosts, addresses []string
	for _, r := range i.Spec.Rules {
		hosts = append(hosts, cmp.Or(r.Host, "*"))
	}
	if len(hosts) == 0 {
		hosts = []string{"*"}
	}
	for _, a := range i.Status.LoadBalancer.Ingress {
		addresses = append(addresses, cmp.Or(a.IP, a.Hostname))
	}
	ports := "80"
	if len(i.Spec.TLS) > 0 {
		ports = "80, 443"
	}
	return []any{i.Name, orNone(ptr.Deref(i.Spec.IngressClassName, "")), few(hosts), strings.Join(addresses, ","),
		ports, age(i)}
}

func ingressClassCells(c *networkingv1.IngressClass) []any {
	parameters := none
	if p := c.Spec.Parameters; p != nil {
		parameters = p.Kind
		if group := ptr.Deref(p.APIGroup, ""); group != "" {
			parameters += "." + group
		}
		parameters += "/" + p.Name
	}
	return []any{c.Name, c.Spec.Controller, parameters, age(c)}
}

// ipAddressCells shows the owner of an address as RESOURCE.GROUP/NAMESPACE/NAME.
func ipAddressCells(a *networkingv1.IPAddress) []any {
	owner := none
	if p := a.Spec.ParentRef; p != nil {
		owner = p.Resource
		if p.Group != "" {
			owner += "." + p.Group
		}
		if p.Namespace != "" {
			owner += "/" + p.Namespace
		}
		owner += "/" + p.Name
	}
	return []any{a.Name, owner, age(a)}
}
