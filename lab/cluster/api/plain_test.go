// SPDX-License-Identifier: Apache-2.0

package api

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab/cluster/store"
)

func TestStoredKinds(t *testing.T) {
	c := newClient(t, store.Config{})
	const ns = "/api/v1/namespaces/default/"
	secret := into[corev1.Secret](c.post(ns+"secrets", "{metadata: {name: s}, stringData: {a: b}, immutable: true}").want(201))
	if string(secret.Data["a"]) != "b" || secret.StringData != nil || secret.Type != "Opaque" {
		t.Errorf("got %+v", secret)
	}
	merge := string("application/merge-patch+json")
	c.do("PATCH", ns+"secrets/s", merge, `{"stringData":{"a":"c"}}`).says(422, metav1.StatusReasonInvalid, "immutable")
	c.post(ns+"configmaps", "{metadata: {name: c}, data: {a: b}}").want(201)
	c.do("PATCH", ns+"configmaps/c", merge, `{"data":{"a":"c"},"immutable":true}`).want(200)
	c.do("PATCH", ns+"configmaps/c", merge, `{"immutable":false}`).says(422, metav1.StatusReasonInvalid, "immutable")
	c.post(ns+"serviceaccounts", "{metadata: {name: a}}").want(201)

	const networking = "/apis/networking.k8s.io/v1/"
	c.post(networking+"ingressclasses", "{metadata: {name: i}, spec: {controller: example.com/c}}").want(201)
	c.post(networking+"namespaces/default/ingresses", "{metadata: {name: i}, spec: {ingressClassName: i, "+
		"defaultBackend: {service: {name: web, port: {number: 80}}}}}").want(201)
	c.do("PATCH", networking+"namespaces/default/ingresses/i/status", merge,
		`{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}`).want(200)
	c.post(networking+"ipaddresses", "{metadata: {name: 10.1.2.3}, spec: {parentRef: {resource: services, name: a}}}").want(201)
	c.post(networking+"ipaddresses", "{metadata: {name: web}, spec: {parentRef: {resource: services, name: a}}}").
		says(422, metav1.StatusReasonInvalid, "valid IP address")
	c.post(networking+"servicecidrs", "{metadata: {name: more}, spec: {cidrs: [10.5.0.1/16]}}").
		says(422, metav1.StatusReasonInvalid, "bits set beyond")
	more := into[networkingv1.ServiceCIDR](c.post(networking+"servicecidrs",
		"{metadata: {name: more}, spec: {cidrs: [10.5.0.0/16]}}").want(201))
	if len(more.Status.Conditions) != 1 || more.Status.Conditions[0].Status != "True" {
		t.Errorf("got %+v", more.Status)
	}
	c.accept = tables
	for path, want := range map[string]string{
		ns + "secrets":                                    "Name Type Data Age\ns Opaque 1 *",
		ns + "configmaps":                                 "Name Data Age\nc 1 *",
		ns + "serviceaccounts":                            "Name Secrets Age\na 0 *",
		networking + "ingressclasses":                     "Name Controller Parameters Age\ni example.com/c <none> *",
		networking + "namespaces/default/ingresses":       "Name Class Hosts Address Ports Age\ni i * 192.0.2.1 80 *",
		networking + "ipaddresses":                        "Name ParentRef Age\n10.1.2.3 services/a *",
		networking + "servicecidrs?labelSelector=missing": "Name CIDRs Age",
	} {
		if got := text(into[metav1.Table](c.get(path).want(200))); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", path, got, want)
		}
	}
	c.accept = ""
	if a := c.get("/metrics").want(200); !strings.Contains(string(a.body),
		"\napiserver_resource_objects{group=\"networking.k8s.io\",resource=\"servicecidrs\"} 2\n") {
		t.Errorf("got %s", a.body)
	}
}

// A write to the status keeps the labels and annotations that come with it, and ignores the spec.
func TestStatusKeepsMetadata(t *testing.T) {
	c := newClient(t, store.Config{}, newService("web"))
	s := c.watch("/api/v1/services?watch=1")
	s.want("ADDED web")
	got := into[corev1.Service](c.do("PATCH", "/api/v1/namespaces/default/services/web/status",
		"application/merge-patch+json", `{"metadata":{"annotations":{"patchedstatus":"true"}},`+
			`"spec":{"type":"NodePort"}}`).want(200))
	if got.Annotations["patchedstatus"] != "true" || got.Spec.Type != "ClusterIP" {
		t.Errorf("got %+v", got)
	}
	s.want("MODIFIED web")
}
