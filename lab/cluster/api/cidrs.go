// SPDX-License-Identifier: Apache-2.0

package api

import (
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab/cluster/store"
)

// serviceCIDRs says what the ranges of ClusterIPs are, as a cluster does that was set up with them: one object of a
// fixed name. It never changes.
func serviceCIDRs(state *store.Store) *memory {
	m := newMemory(networkingv1.SchemeGroupVersion.WithKind("ServiceCIDR"), networkingv1.Resource("servicecidrs"), 1)
	o := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}}
	for _, p := range state.ServiceCIDRs() {
		o.Spec.CIDRs = append(o.Spec.CIDRs, p.String())
	}
	m.put(-1, m.complete(o, nil), nil)
	o.Status.Conditions = []metav1.Condition{{
		Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue,
		LastTransitionTime: o.CreationTimestamp, Message: "Kubernetes default Service CIDR is ready",
	}}
	return m
}
