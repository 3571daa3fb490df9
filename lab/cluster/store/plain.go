// SPDX-License-Identifier: Apache-2.0

package store

import (
	"maps"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// admitPlain completes and checks objects of kinds that are only stored. old is nil for a new object.
func (tx *Tx) admitPlain(obj, old Object) field.ErrorList {
	switch o := obj.(type) {
	case *corev1.ConfigMap:
		if was, _ := old.(*corev1.ConfigMap); was != nil && ptr.Deref(was.Immutable, false) {
			same := equality.Semantic.DeepEqual(was.Data, o.Data) && ptr.Deref(o.Immutable, false) &&
				equality.Semantic.DeepEqual(was.BinaryData, o.BinaryData)
			return keepsData(same)
		}
	case *corev1.Secret:
		defaultSecret(o)
		if was, _ := old.(*corev1.Secret); was != nil && ptr.Deref(was.Immutable, false) {
			return keepsData(equality.Semantic.DeepEqual(was.Data, o.Data) && ptr.Deref(o.Immutable, false))
		}
	case *policyv1.PodDisruptionBudget:
		return admitBudget(o)
	case *networkingv1.ServiceCIDR:
		return tx.admitServiceCIDR(o)
	case *networkingv1.IPAddress:
		addr, err := netip.ParseAddr(o.Name)
		if err != nil || addr.String() != o.Name {
			return invalid(field.NewPath("metadata", "name"), o.Name, "must be an IP address in canonical form")
		}
		if o.Spec.ParentRef == nil {
			return field.ErrorList{field.Required(field.NewPath("spec", "parentRef"), "")}
		}
	case *networkingv1.IngressClass:
		if was, _ := old.(*networkingv1.IngressClass); was != nil {
			return immutable(field.NewPath("spec", "controller"), o.Spec.Controller, was.Spec.Controller)
		}
	}
	return nil
}

func keepsData(same bool) field.ErrorList {
	if same {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("data"), "field is immutable when `immutable` is set")}
}

// defaultSecret moves the strings that people write to the bytes that programs read.
func defaultSecret(s *corev1.Secret) {
	setDefault(&s.Type, corev1.SecretTypeOpaque)
	if len(s.StringData) == 0 {
		return
	}
	s.Data = maps.Clone(s.Data)
	if s.Data == nil {
		s.Data = map[string][]byte{}
	}
	for k, v := range s.StringData {
		s.Data[k] = []byte(v)
	}
	s.StringData = nil
}

// admitServiceCIDR checks a range of ClusterIPs. It is ready at once, but addresses come from the cluster's own ranges.
func (tx *Tx) admitServiceCIDR(c *networkingv1.ServiceCIDR) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec", "cidrs")
	if len(c.Spec.CIDRs) == 0 {
		errs = append(errs, field.Required(path, "at least one CIDR required"))
	}
	for i, text := range c.Spec.CIDRs {
		if p, err := netip.ParsePrefix(text); err != nil || p != p.Masked() {
			errs = append(errs, invalid(path.Index(i), text, "must be a CIDR whose host bits are zero")...)
		}
	}
	if len(c.Status.Conditions) == 0 {
		meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{
			Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue, Reason: "Ready",
			Message: "Kubernetes Service CIDR is ready", LastTransitionTime: tx.now,
		})
	}
	return errs
}
