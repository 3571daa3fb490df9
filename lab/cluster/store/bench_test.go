// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// bigStore has as many Services, each with five ready pods.
func bigStore(tb testing.TB, services int) *Store {
	s := newTestStore(tb, Config{}, "n1", "n2", "n3", "n4", "n5")
	err := s.Do(func(tx *Tx) error {
		for i := range services {
			name := fmt.Sprintf("svc-%05d", i)
			objs := []Object{newService(name)}
			for j := range 5 {
				objs = append(objs, newPod(fmt.Sprintf("%s-%d", name, j), fmt.Sprintf("n%d", j+1), app(name)))
			}
			if err := tx.Apply(objs...); err != nil {
				return err
			}
			for j := range 5 {
				ip := fmt.Sprintf("10.%d.%d.%d", 100+j, i/250, i%250+1)
				if err := UpdateStatus(tx, "default", fmt.Sprintf("%s-%d", name, j), func(p *corev1.Pod) {
					p.Status = corev1.PodStatus{Phase: "Running", PodIP: ip,
						Conditions: []corev1.PodCondition{{Type: "Ready", Status: "True"}}}
				}); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func BenchmarkBuild10000Services(b *testing.B) {
	for b.Loop() {
		if n := len(bigStore(b, 10_000).Snapshot().EndpointSlices); n != 10_000 {
			b.Fatalf("%d slices", n)
		}
	}
}

// One pod of fifty thousand changes its readiness, and a snapshot is taken.
func BenchmarkOneChange(b *testing.B) {
	for _, size := range []int{100, 10_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := bigStore(b, size)
			s.Snapshot()
			status := map[bool]corev1.ConditionStatus{true: "True", false: "False"}
			for i := 0; b.Loop(); i++ {
				name := fmt.Sprintf("svc-%05d-0", i%size)
				if err := UpdateStatus(s, "default", name,
					func(p *corev1.Pod) { p.Status.Conditions[0].Status = status[i/size%2 == 1] }); err != nil {
					b.Fatal(err)
				}
				s.Snapshot()
			}
		})
	}
}

// One Service more, and one less.
func BenchmarkServiceComesAndGoes(b *testing.B) {
	for _, size := range []int{100, 10_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := bigStore(b, size)
			for b.Loop() {
				if err := s.Apply(newService("one")); err != nil {
					b.Fatal(err)
				}
				s.Snapshot()
				if err := s.Delete(KindService, "default", "one"); err != nil {
					b.Fatal(err)
				}
				s.Snapshot()
			}
		})
	}
}
