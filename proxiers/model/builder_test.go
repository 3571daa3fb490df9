// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
)

// many makes a snapshot of n Services with one slice each.
func many(n int) *store.Snapshot {
	s := &store.Snapshot{}
	for i := range n {
		name := fmt.Sprintf("svc-%05d", i)
		s.Services = append(s.Services, service(func(o *corev1.Service) {
			o.Name = name
			o.Spec.ClusterIP, o.Spec.ClusterIPs = fmt.Sprintf("10.96.%d.%d", i/256, i%256), nil
		}))
		sl := slice(name+"-a", "10.0.0.1 n1", "10.0.0.2 n2")
		sl.Labels = map[string]string{discoveryv1.LabelServiceName: name}
		s.EndpointSlices = append(s.EndpointSlices, sl)
	}
	return s
}

func TestUnchangedKeepsPointers(t *testing.T) {
	s := many(10)
	b := NewBuilder("n1", lab.V4)
	first := b.Build(s)
	again := *s
	if b.Build(&again) != first {
		t.Error("the same objects gave another state")
	}

	changed := *s
	changed.EndpointSlices = slices.Clone(s.EndpointSlices)
	changed.EndpointSlices[3] = changed.EndpointSlices[3].DeepCopy()
	changed.EndpointSlices[3].Endpoints = nil
	second := b.Build(&changed)
	gone, come := Diff(first, second)
	if len(gone) != 1 || len(come) != 1 || gone[0] != first.Services[3] || come[0] != second.Services[3] {
		t.Errorf("one slice changed: gone %v, come %v", gone, come)
	}

	touched := changed
	touched.Services = slices.Clone(s.Services)
	touched.Services[5] = touched.Services[5].DeepCopy()
	touched.Services[5].Annotations = map[string]string{"a": "b"}
	if b.Build(&touched) != second {
		t.Error("a change without consequence gave another state")
	}
}

// TestIncrementalEqualsFresh: whatever happened before, the state is that of a builder which sees the snapshot first.
func TestIncrementalEqualsFresh(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := NewBuilder("n1", lab.V4)
		s := &store.Snapshot{}
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			s = mutate(t, s)
			got, want := b.Build(s), NewBuilder("n1", lab.V4).Build(s)
			if !reflect.DeepEqual(got.Services, want.Services) && len(got.Services)+len(want.Services) > 0 {
				t.Fatalf("got  %+v\nwant %+v", got.Services, want.Services)
			}
		}
	})
}

// mutate adds, replaces, or removes some objects.
func mutate(t *rapid.T, s *store.Snapshot) *store.Snapshot {
	next := *s
	next.Services, next.EndpointSlices = slices.Clone(s.Services), slices.Clone(s.EndpointSlices)
	names := rapid.SampledFrom([]string{"a", "b", "c", "d"})
	for range rapid.IntRange(0, 3).Draw(t, "changes") {
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			name := names.Draw(t, "service")
			next.Services = without(next.Services, "shop", name)
		case 1, 2:
			name := names.Draw(t, "service")
			next.Services = put(next.Services, service(func(o *corev1.Service) {
				o.Name = name
				if rapid.Bool().Draw(t, "headless") {
					o.Spec.ClusterIP, o.Spec.ClusterIPs = "None", nil
				}
			}))
		case 3:
			next.EndpointSlices = without(next.EndpointSlices, "shop", names.Draw(t, "slice"))
		case 4:
			o := slice(names.Draw(t, "slice"), rapid.SampledFrom([]string{"10.0.0.1 n1", "10.0.0.2 n2 zone=a",
				"10.0.0.3 n2 unready"}).Draw(t, "endpoint"))
			o.Labels[discoveryv1.LabelServiceName] = names.Draw(t, "owner")
			next.EndpointSlices = put(next.EndpointSlices, o)
		case 5:
			next.Nodes = []*corev1.Node{node("n1", rapid.SampledFrom([]string{"a", "b"}).Draw(t, "zone"))}
		}
	}
	return &next
}

func without[T metav1.Object](all []T, namespace, name string) []T {
	return slices.DeleteFunc(all, func(o T) bool { return o.GetNamespace() == namespace && o.GetName() == name })
}

// put puts an object into a sorted list, in the place of one of the same name.
func put[T metav1.Object](all []T, o T) []T {
	i, found := slices.BinarySearchFunc(all, o, compareObjects[T])
	if found {
		all[i] = o
		return all
	}
	return slices.Insert(all, i, o)
}

func BenchmarkOneChangeIn5000(b *testing.B) {
	s := many(5000)
	builder := NewBuilder("n1", lab.V4)
	builder.Build(s)
	other := *s
	other.EndpointSlices = slices.Clone(s.EndpointSlices)
	other.EndpointSlices[2500] = other.EndpointSlices[2500].DeepCopy()
	other.EndpointSlices[2500].Endpoints = other.EndpointSlices[2500].Endpoints[:1]
	for i := 0; b.Loop(); i++ {
		builder.Build([]*store.Snapshot{&other, s}[i%2])
	}
}

func BenchmarkFirst5000(b *testing.B) {
	s := many(5000)
	for b.Loop() {
		NewBuilder("n1", lab.V4).Build(s)
	}
}
