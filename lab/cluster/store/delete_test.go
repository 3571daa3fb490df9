// SPDX-License-Identifier: Apache-2.0

package store

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func deleteWith(t *testing.T, s *Store, kind Kind, name string, o DeleteOptions) {
	t.Helper()
	if err := s.Do(func(tx *Tx) error { return tx.DeleteWith(kind, "default", name, o) }); err != nil {
		t.Fatal(err)
	}
}

func exists(s *Store, kind Kind, name string) bool {
	_, ok := s.Object(kind, "default", name)
	return ok
}

func TestGracefulDeletion(t *testing.T) {
	s := newTestStore(t, Config{GracefulDeletion: true}, "n1")
	apply(t, s, newPod("p", "n1", nil), newPod("over", "n1", nil), newPod("far", "", nil))
	if err := UpdateStatus(s, "default", "over", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }); err != nil {
		t.Fatal(err)
	}
	deleteWith(t, s, KindPod, "over", DeleteOptions{})
	if exists(s, KindPod, "over") {
		t.Error("a pod that has ended stays")
	}
	deleteWith(t, s, KindPod, "p", DeleteOptions{})
	p := get[*corev1.Pod](t, s, "p")
	if *p.DeletionGracePeriodSeconds != 30 || p.DeletionTimestamp.Sub(epoch).Seconds() != 30 {
		t.Errorf("got %v, %v", p.DeletionGracePeriodSeconds, p.DeletionTimestamp)
	}
	deleteWith(t, s, KindPod, "p", DeleteOptions{GracePeriod: ptr.To[int64](5)})
	deleteWith(t, s, KindPod, "p", DeleteOptions{GracePeriod: ptr.To[int64](60)})
	if p := get[*corev1.Pod](t, s, "p"); *p.DeletionGracePeriodSeconds != 5 {
		t.Errorf("a shorter period counts, a longer one does not: got %d", *p.DeletionGracePeriodSeconds)
	}
	for _, uid := range []types.UID{"other", p.UID} {
		if err := s.RemovePod("default", "p", uid); err != nil || exists(s, KindPod, "p") != (uid == "other") {
			t.Errorf("RemovePod of %s: %v, or the wrong pod", uid, err)
		}
	}
	apply(t, s, newPod("p", "n1", nil))
	if err := s.RemovePod("default", "p", get[*corev1.Pod](t, s, "p").UID); err != nil || !exists(s, KindPod, "p") {
		t.Errorf("RemovePod of a pod that is not being deleted: %v", err)
	}
	deleteWith(t, s, KindPod, "p", DeleteOptions{GracePeriod: ptr.To[int64](0)})
	if exists(s, KindPod, "p") {
		t.Error("the pod is there after a deletion by force")
	}
}

// Without Config.GracefulDeletion, a pod that someone has terminated goes with Delete, also after its grace period.
func TestDeletionAfterTerminate(t *testing.T) {
	now := epoch
	s := New(Config{Now: func() time.Time { return now }})
	apply(t, s, newNode("n1", ""), newPod("p", "n1", nil))
	if err := s.Terminate("default", "p", false); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Hour)
	deleteWith(t, s, KindPod, "p", DeleteOptions{})
	if exists(s, KindPod, "p") {
		t.Error("it is there")
	}
}

func TestFinalizers(t *testing.T) {
	s := newTestStore(t, Config{})
	apply(t, s, newService("web", func(svc *corev1.Service) { svc.Finalizers = []string{"example.com/wait"} }))
	deleteWith(t, s, KindService, "web", DeleteOptions{})
	if svc := get[*corev1.Service](t, s, "web"); svc.DeletionTimestamp == nil {
		t.Error("no deletion timestamp")
	}
	if err := Update(s, "default", "web", func(svc *corev1.Service) { svc.Finalizers = nil }); err != nil {
		t.Fatal(err)
	}
	if exists(s, KindService, "web") {
		t.Error("it is there without its finalizer")
	}
}

func TestPropagation(t *testing.T) {
	for policy, want := range map[metav1.DeletionPropagation]string{
		"": "pods without owner", metav1.DeletePropagationBackground: "pods without owner",
		metav1.DeletePropagationForeground: "owner and pods", metav1.DeletePropagationOrphan: "orphans",
	} {
		s := newTestStore(t, Config{GracefulDeletion: true}, "n1")
		apply(t, s, newDeployment("web", 1))
		name := podNames(s)[0]
		deleteWith(t, s, KindDeployment, "web", DeleteOptions{Propagation: policy})
		p := get[*corev1.Pod](t, s, name)
		got := "pods without owner"
		switch {
		case exists(s, KindDeployment, "web"):
			got = "owner and pods"
		case p.DeletionTimestamp == nil && len(podNames(s)) == 1:
			got = "orphans"
		}
		if got != want {
			t.Errorf("%q: got %s, want %s", policy, got, want)
		}
		if policy == metav1.DeletePropagationOrphan {
			continue
		}
		if err := s.RemovePod("default", name, p.UID); err != nil {
			t.Fatal(err)
		}
		if exists(s, KindDeployment, "web") || len(podNames(s)) > 0 {
			t.Errorf("%q: the owner or pods %q are left", policy, podNames(s))
		}
	}
}

func TestTwoOwners(t *testing.T) {
	s := newTestStore(t, Config{})
	apply(t, s, newService("a"), newService("b"))
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	for _, name := range []string{"a", "b"} {
		c.OwnerReferences = append(c.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Service", Name: name,
			UID: get[*corev1.Service](t, s, name).UID})
	}
	apply(t, s, c)
	deleteWith(t, s, KindService, "a", DeleteOptions{})
	if left := get[*corev1.ConfigMap](t, s, "c").OwnerReferences; len(left) != 1 || left[0].Name != "b" {
		t.Errorf("owners %v", left)
	}
	deleteWith(t, s, KindService, "b", DeleteOptions{})
	if exists(s, KindConfigMap, "c") {
		t.Error("it is there without an owner")
	}
}

func TestTerminatingNamespace(t *testing.T) {
	s := newTestStore(t, Config{GracefulDeletion: true}, "n1")
	d, pod := newDeployment("web", 1), newPod("p", "n1", nil)
	d.Namespace, pod.Namespace = "shop", "shop"
	apply(t, s, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, d, pod)
	if err := s.Delete(KindNamespace, "", "shop"); err != nil {
		t.Fatal(err)
	}
	ns, ok := Get[*corev1.Namespace](s, "", "shop")
	if !ok || ns.Status.Phase != corev1.NamespaceTerminating || ns.DeletionTimestamp == nil {
		t.Fatalf("got %+v", ns)
	}
	more := newService("web")
	more.Namespace = "shop"
	if err := s.Apply(more); !apierrors.IsForbidden(err) || !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) ||
		!strings.Contains(err.Error(), "is being terminated") {
		t.Errorf("a Service in a namespace that ends: %v", err)
	}
	pods := s.Snapshot().Pods
	if len(pods) != 2 {
		t.Errorf("%d pods, want 2", len(pods))
	}
	for _, p := range pods {
		if err := s.RemovePod(p.Namespace, p.Name, p.UID); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := Get[*corev1.Namespace](s, "", "shop"); ok {
		t.Error("the namespace is there without content")
	}
}
