// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// revisionsIn lists the revisions with the images that they return to, in order.
func revisionsIn(t *testing.T, s *Store) []string {
	t.Helper()
	var out []string
	for _, o := range s.Snapshot().Objects(KindControllerRevision) {
		c := o.(*appsv1.ControllerRevision)
		if c.UID == "" || c.CreationTimestamp.IsZero() {
			t.Errorf("no identity: %+v", c.ObjectMeta)
		}
		out = append(out, fmt.Sprintf("%d %s", c.Revision, templateOf(c).Spec.Containers[0].Image))
	}
	slices.Sort(out)
	return out
}

func TestRevisions(t *testing.T) {
	selector := &metav1.LabelSelector{MatchLabels: app("db")}
	daemons := func(image string, limit int32) Object {
		d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}}
		d.Spec = appsv1.DaemonSetSpec{Selector: selector, Template: newDeployment("db", 1).Spec.Template,
			RevisionHistoryLimit: &limit}
		d.Spec.Template.Spec.Containers[0].Image = image
		return d
	}
	ordinals := func(image string, limit int32) Object {
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}}
		set.Spec = appsv1.StatefulSetSpec{Selector: selector, Template: newDeployment("db", 1).Spec.Template,
			RevisionHistoryLimit: &limit, Replicas: ptr.To[int32](2)}
		set.Spec.Template.Spec.Containers[0].Image = image
		return set
	}
	for name, owner := range map[string]func(string, int32) Object{"daemons": daemons, "ordinals": ordinals} {
		t.Run(name, func(t *testing.T) {
			s := newTestStore(t, Config{}, "n1", "n2")
			for _, image := range []string{"web:1", "web:2", "web:3"} {
				apply(t, s, owner(image, 10))
				settled(t, s, func() {})
			}
			checkSame(t, "revisions", revisionsIn(t, s), []string{"1 web:1", "2 web:2", "3 web:3"})
			apply(t, s, owner("web:1", 10))
			settled(t, s, func() {})
			checkSame(t, "revisions", revisionsIn(t, s), []string{"2 web:2", "3 web:3", "4 web:1"})
			checkSame(t, "images", images(s), map[string]int{"web:1": 2})
			apply(t, s, owner("web:1", 1))
			checkSame(t, "revisions", revisionsIn(t, s), []string{"3 web:3", "4 web:1"})
			apply(t, s, owner("web:1", 0))
			checkSame(t, "revisions", revisionsIn(t, s), []string{"4 web:1"})
			deleteWith(t, s, ResourceOf(owner("web:1", 0)).Kind, "db", DeleteOptions{})
			checkSame(t, "revisions", revisionsIn(t, s), nil)
		})
	}
}

// A pod below the partition that is made anew gets the template that the others of its kind have.
func TestPartition(t *testing.T) {
	s := newTestStore(t, Config{}, "n1")
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: appsv1.StatefulSetSpec{
		Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: app("db")},
		Template: newDeployment("db", 1).Spec.Template,
	}}
	apply(t, s, set)
	settled(t, s, func() {})
	set.Spec.Template.Spec.Containers[0].Image = "web:2"
	set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr.To[int32](1)}
	apply(t, s, set)
	settled(t, s, func() {})
	deleteWith(t, s, KindPod, "db-0", DeleteOptions{})
	settled(t, s, func() {})
	checkSame(t, "images", images(s), map[string]int{"web:1": 1, "web:2": 1})
	if image := get[*corev1.Pod](t, s, "db-0").Spec.Containers[0].Image; image != "web:1" {
		t.Errorf("db-0 has the image %s, want web:1", image)
	}
}
