// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestApplyStatus(t *testing.T) {
	s := newTestStore(t, Config{}, "n1")
	apply(t, s, newPod("p", "n1", app("web")))
	old := get[*corev1.Pod](t, s, "p")
	change := func(edit func(*corev1.Pod)) error {
		p := copyOf(old)
		edit(p)
		return s.Do(func(tx *Tx) error { return tx.ApplyStatus(p) })
	}
	if err := change(func(p *corev1.Pod) {
		p.Labels["tier"], p.Annotations = "front", map[string]string{"by": "me"}
		p.Spec.Hostname, p.Status.Phase = "ignored", corev1.PodRunning
	}); err != nil {
		t.Fatal(err)
	}
	if p := get[*corev1.Pod](t, s, "p"); p.Status.Phase != corev1.PodRunning || p.Labels["app"] != "web" ||
		p.Labels["tier"] != "front" || p.Annotations["by"] != "me" || p.Spec.Hostname != "" {
		t.Errorf("got %+v, want phase, labels and annotations as written, and the spec untouched", p)
	}
	if err := change(func(*corev1.Pod) {}); !apierrors.IsConflict(err) {
		t.Errorf("an old resourceVersion: %v, want a conflict", err)
	}
	if err := change(func(p *corev1.Pod) { p.ResourceVersion, p.Name = "", "q" }); !apierrors.IsNotFound(err) {
		t.Errorf("another name: %v, want not found", err)
	}
	if err := change(func(p *corev1.Pod) { p.ResourceVersion, p.UID = "", "other" }); !apierrors.IsConflict(err) {
		t.Errorf("another uid: %v, want a conflict", err)
	}
	if err := s.Do(func(tx *Tx) error { return tx.ApplyStatus(&corev1.Endpoints{}) }); err == nil {
		t.Error("Endpoints have no status, but it was stored")
	}
	if err := s.Do(func(tx *Tx) error {
		if err := tx.Apply(newService("new")); err != nil {
			return err
		}
		if _, ok := tx.Object(KindService, "default", "new"); !ok {
			t.Error("a change does not see its own work")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
