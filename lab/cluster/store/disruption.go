// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// admitBudget checks a PodDisruptionBudget.
func admitBudget(b *policyv1.PodDisruptionBudget) field.ErrorList {
	spec, path := &b.Spec, field.NewPath("spec")
	var errs field.ErrorList
	if spec.MinAvailable != nil && spec.MaxUnavailable != nil {
		errs = append(errs, field.Invalid(path, spec, "minAvailable and maxUnavailable cannot be both set"))
	}
	for name, v := range map[string]*intstr.IntOrString{
		"minAvailable": spec.MinAvailable, "maxUnavailable": spec.MaxUnavailable,
	} {
		if v == nil {
			continue
		}
		if n, err := intstr.GetScaledValueFromIntOrPercent(v, 100, true); err != nil {
			errs = append(errs, field.Invalid(path.Child(name), v.String(), "must be an integer or percentage (e.g '5%')"))
		} else if n < 0 || v.Type == intstr.String && n > 100 {
			errs = append(errs, field.Invalid(path.Child(name), v.String(), "must be a number from 0, or a percentage to 100%"))
		}
	}
	return append(errs, metav1validation.ValidateLabelSelector(spec.Selector,
		metav1validation.LabelSelectorValidationOptions{}, path.Child("selector"))...)
}

// reconcileBudget reports how many of the pods that a PodDisruptionBudget selects may go.
func (tx *Tx) reconcileBudget(key Key) {
	b := tx.s.budgets.objects[key]
	if b == nil || b.DeletionTimestamp != nil {
		return
	}
	pods := those(tx.budgetPods(b), func(p *corev1.Pod) bool { return !isOver(p) })
	st := policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: b.Generation, Conditions: slices.Clone(b.Status.Conditions),
		CurrentHealthy: count(pods, func(p *corev1.Pod) bool { return isReady(p) && !isEnding(p) }),
	}
	switch expected := tx.expectedPods(pods); {
	case b.Spec.MaxUnavailable != nil:
		st.ExpectedPods = expected
		st.DesiredHealthy = max(0, expected-int32(scaled(b.Spec.MaxUnavailable, int(expected), true)))
	case b.Spec.MinAvailable != nil && b.Spec.MinAvailable.Type == intstr.Int:
		st.ExpectedPods, st.DesiredHealthy = int32(len(pods)), b.Spec.MinAvailable.IntVal
	case b.Spec.MinAvailable != nil:
		st.ExpectedPods = expected
		st.DesiredHealthy = int32(scaled(b.Spec.MinAvailable, int(expected), true))
	}
	if st.ExpectedPods > 0 {
		st.DisruptionsAllowed = max(0, st.CurrentHealthy-st.DesiredHealthy)
	}
	c := metav1.Condition{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse,
		Reason: policyv1.InsufficientPodsReason, ObservedGeneration: b.Generation, LastTransitionTime: tx.now}
	if st.DisruptionsAllowed > 0 {
		c.Status, c.Reason = metav1.ConditionTrue, policyv1.SufficientPodsReason
	}
	meta.SetStatusCondition(&st.Conditions, c)
	out := copyOf(b)
	out.Status = st
	tx.put(ResourceOf(out), out)
}

// budgetPods lists the pods that a PodDisruptionBudget selects.
func (tx *Tx) budgetPods(b *policyv1.PodDisruptionBudget) []*corev1.Pod {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		return nil
	}
	return those(tx.s.pods.list(), func(p *corev1.Pod) bool {
		return p.Namespace == b.Namespace && selector.Matches(labels.Set(p.Labels))
	})
}

// expectedPods adds up how many pods the controllers of pods want. A pod without one counts once.
func (tx *Tx) expectedPods(pods []*corev1.Pod) (n int32) {
	seen := map[ref]bool{}
	for _, p := range pods {
		c := metav1.GetControllerOfNoCopy(p)
		if c == nil {
			n++
			continue
		}
		r := ref{Kind(c.Kind), Key{p.Namespace, c.Name}}
		if seen[r] {
			continue
		}
		seen[r] = true
		if rs := tx.s.replicaSets.objects[r.key]; rs != nil && r.kind == KindReplicaSet {
			n += ptr.Deref(rs.Spec.Replicas, 1)
		} else if set := tx.s.statefulSets.objects[r.key]; set != nil && r.kind == KindStatefulSet {
			n += ptr.Deref(set.Spec.Replicas, 1)
		} else {
			n += count(pods, func(o *corev1.Pod) bool { return metav1.IsControlledBy(o, owner(c)) })
		}
	}
	return n
}

func owner(c *metav1.OwnerReference) metav1.Object { return &metav1.ObjectMeta{UID: c.UID} }

// touchedBudgets notes that the budgets that select a pod have to look at it.
func (tx *Tx) touchedBudgets(p *corev1.Pod) {
	for k, b := range tx.s.budgets.objects {
		if k.Namespace != p.Namespace {
			continue
		}
		if s, err := metav1.LabelSelectorAsSelector(b.Spec.Selector); err == nil && s.Matches(labels.Set(p.Labels)) {
			tx.work[KindPodDisruptionBudget][k] = struct{}{}
		}
	}
}

// Evict deletes a pod as Delete does, if its PodDisruptionBudgets allow that; else the error is TooManyRequests.
func (tx *Tx) Evict(namespace, name string, o DeleteOptions) error {
	p := tx.s.pods.objects[Key{namespace, name}]
	if p == nil {
		return tx.fail(apierrors.NewNotFound(corev1.Resource("pods"), name))
	}
	if !isOver(p) && !isEnding(p) && p.Status.Phase != corev1.PodPending {
		if err := tx.mayDisrupt(p); err != nil {
			return tx.fail(err)
		}
	}
	return tx.DeleteWith(KindPod, namespace, name, o)
}

// mayDisrupt returns an error unless the budgets of a pod allow that it goes. A pod that is not ready may go if its
// budget says AlwaysAllow, or if enough others are ready.
func (tx *Tx) mayDisrupt(p *corev1.Pod) error {
	var mine []*policyv1.PodDisruptionBudget
	for _, b := range tx.s.budgets.list() {
		if slices.Contains(tx.budgetPods(b), p) {
			mine = append(mine, b)
		}
	}
	switch {
	case len(mine) == 0:
		return nil
	case len(mine) > 1:
		err := apierrors.NewInternalError(errors.New("this pod has more than one PodDisruptionBudget, which the " +
			"eviction subresource does not support"))
		err.ErrStatus.Reason = "" // as in Kubernetes
		return err
	}
	st := &mine[0].Status
	always := ptr.Deref(mine[0].Spec.UnhealthyPodEvictionPolicy, "") == policyv1.AlwaysAllow
	enough := st.CurrentHealthy >= st.DesiredHealthy && st.DesiredHealthy > 0
	if st.DisruptionsAllowed > 0 || !isReady(p) && (always || enough) {
		return nil
	}
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: policyv1.DisruptionBudgetCause, Message: fmt.Sprintf(
			"The disruption budget %s needs %d healthy pods and has %d currently", mine[0].Name, st.DesiredHealthy,
			st.CurrentHealthy),
	}}
	return err
}
