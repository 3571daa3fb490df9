// SPDX-License-Identifier: Apache-2.0

package store

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
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
		was, _ := old.(*networkingv1.ServiceCIDR)
		return tx.admitServiceCIDR(o, was)
	case *networkingv1.IPAddress:
		was, _ := old.(*networkingv1.IPAddress)
		return admitIPAddress(o, was)
	case *networkingv1.IngressClass:
		was, _ := old.(*networkingv1.IngressClass)
		return admitIngressClass(o, was)
	case *networkingv1.Ingress:
		return tx.admitIngress(o, old == nil)
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
