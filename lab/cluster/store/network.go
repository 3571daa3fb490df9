// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

func defaultEndpointSlice(s *discoveryv1.EndpointSlice) {
	for i := range s.Ports {
		setDefault(&s.Ports[i].Name, ptr.To(""))
		setDefault(&s.Ports[i].Protocol, ptr.To(corev1.ProtocolTCP))
	}
}

// Limits of the API on hand-written slices.
const (
	maxEndpoints = 1000
	maxAddresses = 100
	maxPorts     = 20000
)

func validateEndpointSlice(s, old *discoveryv1.EndpointSlice) field.ErrorList {
	path := field.NewPath("addressType")
	errs := oneOf(path, s.AddressType,
		discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN)
	if old != nil {
		errs = append(errs, immutable(path, s.AddressType, old.AddressType)...)
	}
	errs = append(errs, atMost(field.NewPath("endpoints"), len(s.Endpoints), maxEndpoints)...)
	for i := range s.Endpoints {
		errs = append(errs, validateEndpoint(&s.Endpoints[i], s.AddressType, field.NewPath("endpoints").Index(i))...)
	}
	return append(errs, validateEndpointPorts(s)...)
}

func validateEndpointPorts(s *discoveryv1.EndpointSlice) field.ErrorList {
	errs := atMost(field.NewPath("ports"), len(s.Ports), maxPorts)
	names := map[string]bool{}
	for i, p := range s.Ports {
		at := field.NewPath("ports").Index(i)
		errs = append(errs, once(at.Child("name"), names, *p.Name, *p.Name)...)
		errs = append(errs, checkSet(at.Child("name"), *p.Name, validation.IsDNS1123Label)...)
		errs = append(errs, oneOf(at.Child("protocol"), *p.Protocol, protocols...)...)
		if p.Port != nil {
			errs = append(errs, validatePort(at.Child("port"), *p.Port)...)
		}
	}
	return errs
}

func validateEndpoint(e *discoveryv1.Endpoint, t discoveryv1.AddressType, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	addresses := path.Child("addresses")
	if len(e.Addresses) == 0 {
		errs = append(errs, field.Required(addresses, "must contain at least 1 address"))
	}
	errs = append(errs, atMost(addresses, len(e.Addresses), maxAddresses)...)
	for i, a := range e.Addresses {
		errs = append(errs, validateEndpointAddress(addresses, i, a, t)...)
	}
	if e.NodeName != nil {
		errs = append(errs, check(path.Child("nodeName"), *e.NodeName, validation.IsDNS1123Subdomain)...)
	}
	if e.Hostname != nil {
		errs = append(errs, check(path.Child("hostname"), *e.Hostname, validation.IsDNS1123Label)...)
	}
	return errs
}

// validateEndpointAddress checks an address of a list. As in Kubernetes, one of another family is a mistake of the
// list.
func validateEndpointAddress(list *field.Path, i int, a string, t discoveryv1.AddressType) field.ErrorList {
	switch t {
	case discoveryv1.AddressTypeFQDN:
		return validation.IsFullyQualifiedDomainName(list.Index(i), a)
	case discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6:
		errs := validateOrdinaryIP(list.Index(i), a)
		if ip, err := netip.ParseAddr(a); err == nil && string(familyOf(ip)) != string(t) {
			errs = append(errs, field.Invalid(list, a, fmt.Sprintf("must be an %s address, as `addressType` says", t)))
		}
		return errs
	default:
		return nil // the type itself is the error
	}
}

func defaultNetworkPolicy(p *networkingv1.NetworkPolicy) {
	if len(p.Spec.PolicyTypes) == 0 {
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(p.Spec.Egress) > 0 {
			p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
	for i := range p.Spec.Ingress {
		defaultPolicyPorts(p.Spec.Ingress[i].Ports)
	}
	for i := range p.Spec.Egress {
		defaultPolicyPorts(p.Spec.Egress[i].Ports)
	}
}

func defaultPolicyPorts(ports []networkingv1.NetworkPolicyPort) {
	for i := range ports {
		setDefault(&ports[i].Protocol, ptr.To(corev1.ProtocolTCP))
	}
}

func validateNetworkPolicy(p *networkingv1.NetworkPolicy) field.ErrorList {
	spec, path := &p.Spec, field.NewPath("spec")
	errs := validatePolicySelector(&spec.PodSelector, path.Child("podSelector"))
	for i, r := range spec.Ingress {
		at := path.Child("ingress").Index(i)
		errs = append(errs, validatePolicyPorts(r.Ports, at.Child("ports"))...)
		errs = append(errs, validatePolicyPeers(r.From, at.Child("from"))...)
	}
	for i, r := range spec.Egress {
		at := path.Child("egress").Index(i)
		errs = append(errs, validatePolicyPorts(r.Ports, at.Child("ports"))...)
		errs = append(errs, validatePolicyPeers(r.To, at.Child("to"))...)
	}
	for i, t := range spec.PolicyTypes {
		at := path.Child("policyTypes").Index(i)
		errs = append(errs, oneOf(at, t, networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress)...)
		if slices.Contains(spec.PolicyTypes[:i], t) {
			errs = append(errs, field.Duplicate(at, t))
		}
	}
	return errs
}

func validatePolicySelector(s *metav1.LabelSelector, path *field.Path) field.ErrorList {
	return metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, path)
}

func validatePolicyPorts(ports []networkingv1.NetworkPolicyPort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, p := range ports {
		at := path.Index(i)
		errs = append(errs, oneOf(at.Child("protocol"), *p.Protocol, protocols...)...)
		numeric := p.Port != nil && p.Port.Type == intstr.Int
		switch {
		case numeric:
			errs = append(errs, validatePort(at.Child("port"), p.Port.IntVal)...)
		case p.Port != nil:
			errs = append(errs, check(at.Child("port"), p.Port.StrVal, validation.IsValidPortName)...)
		}
		if p.EndPort == nil {
			continue
		}
		end := at.Child("endPort")
		switch {
		case p.Port == nil:
			errs = append(errs, field.Invalid(end, *p.EndPort, "may not be specified when `port` is not specified"))
		case !numeric:
			errs = append(errs, field.Invalid(end, *p.EndPort, "may not be specified when `port` is non-numeric"))
		default:
			errs = append(errs, validatePort(end, *p.EndPort)...)
			if *p.EndPort < p.Port.IntVal {
				errs = append(errs, field.Invalid(end, *p.EndPort, "must be greater than or equal to `port`"))
			}
		}
	}
	return errs
}

func validatePolicyPeers(peers []networkingv1.NetworkPolicyPeer, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, p := range peers {
		at := path.Index(i)
		if p.PodSelector != nil {
			errs = append(errs, validatePolicySelector(p.PodSelector, at.Child("podSelector"))...)
		}
		if p.NamespaceSelector != nil {
			errs = append(errs, validatePolicySelector(p.NamespaceSelector, at.Child("namespaceSelector"))...)
		}
		if p.IPBlock != nil {
			errs = append(errs, validateIPBlock(p.IPBlock, at.Child("ipBlock"))...)
		}
		switch selected := p.PodSelector != nil || p.NamespaceSelector != nil; {
		case p.IPBlock != nil && selected:
			errs = append(errs, field.Forbidden(at, "may not specify both ipBlock and another peer"))
		case p.IPBlock == nil && !selected:
			errs = append(errs, field.Required(at, "must specify a peer: podSelector, namespaceSelector or ipBlock"))
		}
	}
	return errs
}

func validateIPBlock(b *networkingv1.IPBlock, path *field.Path) field.ErrorList {
	if b.CIDR == "" {
		return field.ErrorList{field.Required(path.Child("cidr"), "")}
	}
	errs := validateCIDR(path.Child("cidr"), b.CIDR)
	for i, e := range b.Except {
		at := path.Child("except").Index(i)
		bad := validateCIDR(at, e)
		errs = append(errs, bad...)
		block, err1 := netip.ParsePrefix(b.CIDR)
		except, err2 := netip.ParsePrefix(e)
		if err1 == nil && err2 == nil && (!block.Contains(except.Addr()) || except.Bits() <= block.Bits()) {
			errs = append(errs, field.Invalid(at, e, fmt.Sprintf("must be a strict subset of `cidr` (%s)", b.CIDR)))
		}
	}
	return errs
}

func validateCIDR(path *field.Path, cidr string) field.ErrorList {
	return validation.IsValidCIDRForLegacyField(path, cidr, true, nil)
}
