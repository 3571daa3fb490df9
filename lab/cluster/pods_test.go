// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster"
	"github.com/viplab/viplab/lab/cluster/store"
)

// Pods are replaced by others of the same names while they start, while they are taken down, and before either.
func TestPodsReplacedMidway(t *testing.T) {
	const namespace, count, rounds = "busy", 12, 8
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := cluster.New(ctx, lab.Topology{Nodes: []lab.NodeSpec{{Name: "n1"}, {Name: "n2"}}, Stack: lab.Dual})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	apply := func(o store.Object) {
		t.Helper()
		if err := c.Store().Apply(o); err != nil {
			t.Fatal(err)
		}
	}
	apply(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	for round := range rounds {
		for i := range count {
			name := fmt.Sprintf("p%d", i)
			if round > 0 {
				if err := c.Store().Delete(store.KindPod, namespace, name); err != nil {
					t.Fatal(err)
				}
			}
			apply(&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
				Spec: corev1.PodSpec{NodeName: fmt.Sprintf("n%d", i%2+1), Containers: []corev1.Container{{
					Name: "echo", Image: "echo", Ports: []corev1.ContainerPort{{ContainerPort: 8080}},
				}}},
			})
		}
	}
	if err := c.WaitPods(ctx, namespace); err != nil {
		t.Fatal(err)
	}
	if got := len(c.Lab().Pods()); got != count {
		t.Errorf("the lab has %d pods, want %d", got, count)
	}
	for i := range count {
		name := fmt.Sprintf("p%d", i)
		p, ok := store.Get[*corev1.Pod](c.Store(), namespace, name)
		host := c.Lab().Pod(namespace + "/" + name)
		if !ok || host == nil {
			t.Errorf("%s: in the state: %v, in the lab: %v", name, ok, host)
			continue
		}
		var reported, has []string
		for _, ip := range p.Status.PodIPs {
			reported = append(reported, ip.IP)
		}
		for _, a := range host.Addrs() {
			has = append(has, a.String())
		}
		if !slices.Equal(reported, has) {
			t.Errorf("%s: the state has the addresses %v, the lab %v", name, reported, has)
		}
		if c.Server(namespace, name) == nil {
			t.Errorf("%s serves nothing", name)
		}
	}
}
