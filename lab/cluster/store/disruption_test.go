// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

func newBudget(change func(*policyv1.PodDisruptionBudgetSpec)) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: app("web")}
	change(&b.Spec)
	return b
}

func evict(s *Store, pod string) error {
	return s.Do(func(tx *Tx) error { return tx.Evict("default", pod, DeleteOptions{}) })
}

func TestEviction(t *testing.T) {
	least := func(v string) func(*policyv1.PodDisruptionBudgetSpec) {
		return func(spec *policyv1.PodDisruptionBudgetSpec) { spec.MinAvailable = ptr.To(intstr.Parse(v)) }
	}
	most := func(v string) func(*policyv1.PodDisruptionBudgetSpec) {
		return func(spec *policyv1.PodDisruptionBudgetSpec) { spec.MaxUnavailable = ptr.To(intstr.Parse(v)) }
	}
	for name, c := range map[string]struct {
		budget func(*policyv1.PodDisruptionBudgetSpec)
		may    int // how many of four may go
	}{
		"at least 3": {least("3"), 1}, "at least half": {least("50%"), 2}, "at least all": {least("100%"), 0},
		"at most 2": {most("2"), 2}, "at most a third": {most("30%"), 2}, "at most none": {most("0"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestStore(t, Config{GracefulDeletion: true}, "n1")
			apply(t, s, newBudget(c.budget), newDeployment("web", 4))
			settled(t, s, func() {})
			b := get[*policyv1.PodDisruptionBudget](t, s, "b")
			if st := b.Status; st.DisruptionsAllowed != int32(c.may) || st.CurrentHealthy != 4 || st.ExpectedPods != 4 {
				t.Errorf("status %+v", st)
			}
			gone := 0
			for _, p := range s.Snapshot().Pods {
				err := evict(s, p.Name)
				switch {
				case err == nil:
					gone++
				case !apierrors.IsTooManyRequests(err) || !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause):
					t.Errorf("error %v", err)
				}
			}
			if gone != c.may {
				t.Errorf("%d pods may go, want %d", gone, c.may)
			}
			settled(t, s, func() {}) // others take their place
			if n := get[*policyv1.PodDisruptionBudget](t, s, "b").Status.DisruptionsAllowed; int(n) != c.may {
				t.Errorf("%d may go then, want %d", n, c.may)
			}
		})
	}
}

func TestEvictionWithoutABudget(t *testing.T) {
	s := newTestStore(t, Config{}, "n1")
	apply(t, s, newPod("p", "n1", app("other")), newPod("sick", "n1", app("web")),
		newBudget(func(b *policyv1.PodDisruptionBudgetSpec) { b.MinAvailable = ptr.To(intstr.FromInt32(1)) }))
	report(t, s, "p", true, "10.244.1.1")
	report(t, s, "sick", false, "10.244.1.2")
	if err := evict(s, "p"); err != nil {
		t.Error(err)
	}
	if err := evict(s, "none"); !apierrors.IsNotFound(err) {
		t.Errorf("error %v", err)
	}
	if err := evict(s, "sick"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("error %v", err)
	}
	apply(t, s, newBudget(func(b *policyv1.PodDisruptionBudgetSpec) {
		b.MinAvailable, b.UnhealthyPodEvictionPolicy = ptr.To(intstr.FromInt32(1)), ptr.To(policyv1.AlwaysAllow)
	}))
	if err := evict(s, "sick"); err != nil {
		t.Error(err)
	}
	for _, bad := range []func(*policyv1.PodDisruptionBudgetSpec){
		func(b *policyv1.PodDisruptionBudgetSpec) { b.MinAvailable = ptr.To(intstr.FromString("half")) },
		func(b *policyv1.PodDisruptionBudgetSpec) { b.MaxUnavailable = ptr.To(intstr.FromString("101%")) },
		func(b *policyv1.PodDisruptionBudgetSpec) { b.MaxUnavailable = ptr.To(intstr.FromInt32(-1)) },
		func(b *policyv1.PodDisruptionBudgetSpec) {
			b.MinAvailable, b.MaxUnavailable = ptr.To(intstr.FromInt32(1)), ptr.To(intstr.FromInt32(1))
		},
	} {
		if err := s.Apply(newBudget(bad)); !apierrors.IsInvalid(err) {
			t.Errorf("error %v", err)
		}
	}
}

// A drained node gets no new pods, and those of a StatefulSet move elsewhere.
func TestCordon(t *testing.T) {
	s := newTestStore(t, Config{}, "n1", "n2")
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: appsv1.StatefulSetSpec{
		Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: app("db")},
		Template: newDeployment("db", 1).Spec.Template,
	}}
	apply(t, s, set)
	settled(t, s, func() {})
	node := get[*corev1.Pod](t, s, "db-0").Spec.NodeName
	if err := Update(s, "", node, func(n *corev1.Node) { n.Spec.Unschedulable = true }); err != nil {
		t.Fatal(err)
	}
	if err := evict(s, "db-0"); err != nil {
		t.Fatal(err)
	}
	if now := get[*corev1.Pod](t, s, "db-0").Spec.NodeName; now == node || now == "" {
		t.Errorf("db-0 was on %q and is on %q", node, now)
	}
}
