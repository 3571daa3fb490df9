// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// setFamilies sets ipFamilyPolicy and ipFamilies from the wishes and addresses of a Service and the families of the
// cluster. Afterwards there is one family per ClusterIP.
func (s *Store) setFamilies(svc, old *corev1.Service) field.ErrorList {
	if !needsClusterIP(svc) {
		return nil
	}
	spec := &svc.Spec
	errs := append(wellFormedFamilies(spec), validateClusterIPs(svc)...)
	if errs = append(errs, inferFamilies(spec)...); len(errs) > 0 {
		return errs
	}
	if isHeadless(svc) && len(spec.Selector) == 0 {
		s.setFamiliesFreely(spec)
		return nil
	}
	if errs = s.checkFamilies(spec); len(errs) > 0 {
		return errs
	}
	setDefault(&spec.IPFamilyPolicy, ptr.To(corev1.IPFamilyPolicySingleStack))
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []corev1.IPFamily{s.families[0]}
	}
	if *spec.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack && len(spec.IPFamilies) == 1 && len(s.families) == 2 {
		spec.IPFamilies = append(slices.Clip(spec.IPFamilies), otherFamily(spec.IPFamilies[0]))
	}
	if old != nil && needsClusterIP(old) && len(old.Spec.IPFamilies) > 0 &&
		spec.IPFamilies[0] != old.Spec.IPFamilies[0] {
		errs = append(errs, field.Invalid(field.NewPath("spec", "ipFamilies").Index(0), spec.IPFamilies[0],
			fmt.Sprintf("may not change once set (it is %s)", old.Spec.IPFamilies[0])))
	}
	return errs
}

// setFamiliesFreely is setFamilies for a headless Service without a selector, whose endpoints may have any family.
func (s *Store) setFamiliesFreely(spec *corev1.ServiceSpec) {
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []corev1.IPFamily{s.families[0]}
	}
	setDefault(&spec.IPFamilyPolicy, ptr.To(corev1.IPFamilyPolicyRequireDualStack))
	if *spec.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack && len(spec.IPFamilies) == 1 {
		spec.IPFamilies = append(slices.Clip(spec.IPFamilies), otherFamily(spec.IPFamilies[0]))
	}
}

// checkFamilies finds wishes that this cluster, or the policy, does not allow.
func (s *Store) checkFamilies(spec *corev1.ServiceSpec) field.ErrorList {
	var errs field.ErrorList
	policy, families := field.NewPath("spec", "ipFamilyPolicy"), field.NewPath("spec", "ipFamilies")
	asked := ptr.Deref(spec.IPFamilyPolicy, corev1.IPFamilyPolicySingleStack)
	if asked == corev1.IPFamilyPolicyRequireDualStack && len(s.families) < 2 {
		errs = append(errs, field.Invalid(policy, asked, "this cluster is not configured for dual-stack services"))
	}
	if asked == corev1.IPFamilyPolicySingleStack && (len(spec.IPFamilies) > 1 || len(spec.ClusterIPs) > 1) {
		errs = append(errs, field.Invalid(policy, asked,
			"must be 'PreferDualStack' or 'RequireDualStack' when multiple IP families or cluster IPs are specified"))
	}
	for i, f := range spec.IPFamilies {
		if !slices.Contains(s.families, f) {
			errs = append(errs, field.Invalid(families.Index(i), f, "not configured on this cluster"))
		}
	}
	return errs
}

// wellFormedFamilies checks the list of families by itself.
func wellFormedFamilies(spec *corev1.ServiceSpec) field.ErrorList {
	var errs field.ErrorList
	families := field.NewPath("spec", "ipFamilies")
	for i, f := range spec.IPFamilies {
		errs = append(errs, oneOf(families.Index(i), f, corev1.IPv4Protocol, corev1.IPv6Protocol)...)
		if slices.Contains(spec.IPFamilies[:i], f) {
			errs = append(errs, field.Duplicate(families.Index(i), f))
		}
	}
	return append(errs, atMost(families, len(spec.IPFamilies), 2)...)
}

// inferFamilies learns families from the addresses the Service names, or finds that the two disagree.
func inferFamilies(spec *corev1.ServiceSpec) field.ErrorList {
	var errs field.ErrorList
	for i, address := range spec.ClusterIPs {
		ip, err := netip.ParseAddr(address)
		if err != nil {
			continue // "None", or an address that validation will reject
		}
		switch {
		case i == len(spec.IPFamilies):
			spec.IPFamilies = append(slices.Clip(spec.IPFamilies), familyOf(ip))
		case i < len(spec.IPFamilies) && spec.IPFamilies[i] == otherFamily(familyOf(ip)):
			errs = append(errs, field.Invalid(field.NewPath("spec", "clusterIPs").Index(i), address,
				fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%d]`", spec.IPFamilies[i], i)))
		}
	}
	return errs
}

func otherFamily(f corev1.IPFamily) corev1.IPFamily {
	if f == corev1.IPv4Protocol {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}
