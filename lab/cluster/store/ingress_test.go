// SPDX-License-Identifier: Apache-2.0

package store

import (
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func backend(name string, port int32) networkingv1.IngressBackend {
	return networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
		Name: name, Port: networkingv1.ServiceBackendPort{Number: port},
	}}
}

func newIngress(name string, change ...func(*networkingv1.Ingress)) *networkingv1.Ingress {
	in := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       networkingv1.IngressSpec{DefaultBackend: ptr.To(backend("web", 80))},
	}
	for _, c := range change {
		c(in)
	}
	return in
}

func newClass(name string, isDefault bool) *networkingv1.IngressClass {
	c := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.Controller = "example.com/c"
	if isDefault {
		c.Annotations = map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"}
	}
	return c
}

func TestTheDefaultIngressClass(t *testing.T) {
	now := epoch
	s := New(Config{Now: func() time.Time { return now }})
	apply(t, s, newClass("a", false), newIngress("without"))
	apply(t, s, newClass("c", true), newClass("b", true), newIngress("first"))
	now = now.Add(time.Second)
	apply(t, s, newClass("d", true), newIngress("second"),
		newIngress("own", func(in *networkingv1.Ingress) { in.Spec.IngressClassName = ptr.To("a") }),
		newIngress("old", func(in *networkingv1.Ingress) { in.Annotations = map[string]string{annotationIngressClass: "x"} }))
	apply(t, s, newIngress("without", func(in *networkingv1.Ingress) { in.Labels = app("x") }))
	for name, want := range map[string]string{
		"without": "", "first": "b", "second": "d", "own": "a", "old": "",
	} {
		if got := ptr.Deref(get[*networkingv1.Ingress](t, s, name).Spec.IngressClassName, ""); got != want {
			t.Errorf("%s: class %q, want %q", name, got, want)
		}
	}
}

func TestIngressesThatAreRefused(t *testing.T) {
	path := func(p string, kind networkingv1.PathType) func(*networkingv1.Ingress) {
		return func(in *networkingv1.Ingress) {
			in.Spec.Rules = []networkingv1.IngressRule{{IngressRuleValue: networkingv1.IngressRuleValue{
				HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
					Path: p, PathType: &kind, Backend: backend("web", 80),
				}}},
			}}}
		}
	}
	host := func(h string) func(*networkingv1.Ingress) {
		return func(in *networkingv1.Ingress) { in.Spec.Rules = []networkingv1.IngressRule{{Host: h}} }
	}
	s := newTestStore(t, Config{})
	for want, change := range map[string]func(*networkingv1.Ingress){
		"`rules` must be specified":   func(in *networkingv1.Ingress) { in.Spec.DefaultBackend = nil },
		"not an IP address":           host("10.0.0.1"),
		"a lowercase RFC 1123":        host("A_b"),
		"must be an absolute path":    path("x", networkingv1.PathTypePrefix),
		"must not contain '//'":       path("/a//b", networkingv1.PathTypeExact),
		"cannot end with '/..'":       path("/a/..", networkingv1.PathTypeExact),
		"Unsupported value":           path("/a", "Other"),
		"port name or number":         func(in *networkingv1.Ingress) { in.Spec.DefaultBackend = ptr.To(backend("web", 0)) },
		"resource or service backend": func(in *networkingv1.Ingress) { in.Spec.DefaultBackend = &networkingv1.IngressBackend{} },
	} {
		if err := s.Apply(newIngress("x", change)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	apply(t, s, newIngress("x", path("", networkingv1.PathTypeImplementationSpecific)), newIngress("y", host("*.example.org")))
}

func TestParametersOfIngressClasses(t *testing.T) {
	s := newTestStore(t, Config{})
	class := func(p networkingv1.IngressClassParametersReference) *networkingv1.IngressClass {
		c := newClass("c", false)
		p.Kind, p.Name = "k", "n"
		c.Spec.Parameters = &p
		return c
	}
	apply(t, s, class(networkingv1.IngressClassParametersReference{}))
	if got := get[*networkingv1.IngressClass](t, s, "c").Spec.Parameters.Scope; ptr.Deref(got, "") != "Cluster" {
		t.Errorf("scope %v, want Cluster", got)
	}
	if err := s.Apply(class(networkingv1.IngressClassParametersReference{Scope: ptr.To("Namespace")})); err == nil {
		t.Error("a scope Namespace without a namespace was accepted")
	}
	apply(t, s, class(networkingv1.IngressClassParametersReference{Scope: ptr.To("Namespace"), Namespace: ptr.To("foo")}))
}
