// SPDX-License-Identifier: Apache-2.0

package store

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

var epoch = time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)

// newTestStore returns a store whose clock stands still, with the given nodes.
func newTestStore(t testing.TB, c Config, nodes ...string) *Store {
	t.Helper()
	c.Now = func() time.Time { return epoch }
	s := New(c)
	for _, n := range nodes {
		apply(t, s, newNode(n, ""))
	}
	return s
}

func apply(t testing.TB, s *Store, objs ...Object) {
	t.Helper()
	if err := s.Apply(objs...); err != nil {
		t.Fatal(err)
	}
}

// decode returns the objects of YAML documents. Package manifest, which imports this one, is for all others.
func decode(t testing.TB, text string) (out []Object) {
	t.Helper()
	for _, document := range strings.Split(text, "\n---\n") {
		var of metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &of); err != nil {
			t.Fatal(err)
		}
		r, err := ResourceNamed(of.Kind)
		if err != nil {
			t.Fatal(err)
		}
		o := r.New()
		if err := yaml.UnmarshalStrict([]byte(document), o); err != nil {
			t.Fatal(err)
		}
		out = append(out, o)
	}
	return out
}

func decodeFile(t testing.TB, name string) []Object {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, string(text))
}

func newNode(name, zone string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if zone != "" {
		n.Labels = map[string]string{corev1.LabelTopologyZone: zone}
	}
	return n
}

func newPod(name, node string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Name: "main", Image: "web:1", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
		}}},
	}
}

func newService(name string, change ...func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": name},
			Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}
	for _, c := range change {
		c(svc)
	}
	return svc
}

func app(name string) map[string]string { return map[string]string{"app": name} }

// report plays kubelet.
func report(t testing.TB, s *Store, pod string, ready bool, ips ...string) {
	t.Helper()
	var addresses []netip.Addr
	for _, ip := range ips {
		addresses = append(addresses, netip.MustParseAddr(ip))
	}
	if err := UpdateStatus(s, "default", pod, ReportRunning(ready, addresses...)); err != nil {
		t.Fatal(err)
	}
}

func get[T Object](t testing.TB, s *Store, name string) T {
	t.Helper()
	o, ok := Get[T](s, "default", name)
	if !ok {
		t.Fatalf("%T %q is not there", o, name)
	}
	return o
}
