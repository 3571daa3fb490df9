// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// A view hides Services labelled hidden, and shows the others with another port.
func lookElsewhere(o Object) Object {
	s, ok := o.(*corev1.Service)
	if !ok {
		return o
	}
	if s.Labels["hidden"] != "" {
		return nil
	}
	s = s.DeepCopy()
	s.Spec.Ports[0].Port = 81
	return s
}

func serviceForView(labels map[string]string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Labels: labels},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

func TestAViewShowsWhatItsLensMakesOfThings(t *testing.T) {
	s := New(Config{})
	view := s.View(lookElsewhere)
	if err := s.Apply(serviceForView(nil)); err != nil {
		t.Fatal(err)
	}
	seen, ok := Get[*corev1.Service](view, "default", "web")
	if !ok || seen.Spec.Ports[0].Port != 81 {
		t.Errorf("Get through the view: %v, %t", seen, ok)
	}
	if real, _ := Get[*corev1.Service](s, "default", "web"); real.Spec.Ports[0].Port != 80 {
		t.Errorf("the store itself has changed: %v", real.Spec.Ports)
	}
	first := view.Snapshot()
	if len(first.Services) != 1 || first.Services[0] != seen || first.Revision != s.Snapshot().Revision {
		t.Errorf("snapshot of the view: %v at %d", first.Services, first.Revision)
	}
	if err := view.Apply(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}); err != nil {
		t.Fatal(err)
	}
	if again := view.Snapshot(); again == first || again.Services[0] != seen ||
		len(again.Namespaces) != len(first.Namespaces)+1 {
		t.Error("what has not changed must stay the same object, and writes must reach the store")
	}
}

func TestAViewTellsOfWhatComesIntoSightAndGoes(t *testing.T) {
	s := New(Config{})
	view := s.View(lookElsewhere)
	for _, step := range []struct {
		do   func() error
		want []watch.EventType
	}{
		{func() error { return s.Apply(serviceForView(map[string]string{"hidden": "yes"})) }, nil},
		{func() error { return s.Apply(serviceForView(nil)) }, []watch.EventType{watch.Added}},
		{func() error { return s.Apply(serviceForView(map[string]string{"a": "b"})) }, []watch.EventType{watch.Modified}},
		{func() error { return s.Apply(serviceForView(map[string]string{"hidden": "yes"})) },
			[]watch.EventType{watch.Deleted}},
		{func() error { return s.Delete(KindService, "default", "web") }, nil},
	} {
		before := s.Snapshot().Revision
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		events, err := view.EventsSince(before)
		if err != nil {
			t.Fatal(err)
		}
		var got []watch.EventType
		for _, e := range events {
			if e.Kind == KindService {
				got = append(got, e.Type)
				if port := e.Object.(*corev1.Service).Spec.Ports[0].Port; port != 81 {
					t.Errorf("%s with port %d, as it is in the store", e.Type, port)
				}
			}
		}
		if len(got) != len(step.want) || len(got) == 1 && got[0] != step.want[0] {
			t.Errorf("the view tells of %v, not %v", got, step.want)
		}
	}
}
