// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
)

// waits reports whether a request may wait for something that no fuzz test does: watches, and streams to pods.
func waits(target string) bool {
	for _, word := range []string{"watch", "follow", "exec", "attach", "portforward", "proxy"} {
		if strings.Contains(strings.ToLower(target), word) {
			return true
		}
	}
	return false
}

// A judged program may send any request to the API. The HTTP server would hide a panic; here nothing does.
func FuzzRequest(f *testing.F) {
	const web = "/api/v1/namespaces/default/services/web"
	const service = `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "new"}, "spec": {"ports": [{"port": 80}]}}`
	for _, r := range [][4]string{
		{"GET", "/api/v1/services?limit=1&labelSelector=a%3Db&fieldSelector=metadata.name%3Dweb", "", ""},
		{"GET", "/apis", "application/json;as=Table;v=v1;g=meta.k8s.io", ""},
		{"GET", "/openapi/v3", "", ""},
		{"POST", "/api/v1/namespaces/default/services?dryRun=All&fieldValidation=Strict", "application/json", service},
		{"POST", "/apis/batch/v1/namespaces/default/jobs", "application/yaml", "kind: Job"},
		{"PUT", web, "application/json", service},
		{"PUT", "/apis/apps/v1/namespaces/default/deployments/a/scale", "application/json", `{"spec": {"replicas": 3}}`},
		{"PATCH", web, "application/merge-patch+json", `{"spec": {"ports": null}}`},
		{"PATCH", web, "application/json-patch+json", `[{"op": "replace", "path": "/spec/ports/0/port", "value": 81}]`},
		{"PATCH", web, "application/strategic-merge-patch+json", `{"spec": {"ports": [{"$patch": "delete", "port": 80}]}}`},
		{"PATCH", web + "?fieldManager=a&force=true", "application/apply-patch+yaml", service},
		{"DELETE", web, "application/json", `{"propagationPolicy": "Foreground", "preconditions": {"uid": "x"}}`},
		{"DELETE", "/api/v1/namespaces/default/services?labelSelector=a", "", ""},
		{"POST", "/api/v1/namespaces/default/pods/p/eviction", "application/json", `{"kind": "Eviction"}`},
		{"POST", "/api/v1/namespaces/default/serviceaccounts/default/token", "application/json", `{"spec": {}}`},
	} {
		f.Add(r[0], r[1], r[2], r[3])
	}
	f.Fuzz(func(t *testing.T, method, target, media, body string) {
		if _, err := url.ParseRequestURI(target); err != nil || !strings.HasPrefix(target, "/") || waits(target) {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, method, "http://api.test"+target, strings.NewReader(body))
		if err != nil {
			return
		}
		state := store.New(store.Config{Stack: lab.Dual})
		if err := state.Apply(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}); err != nil {
			t.Fatal(err)
		}
		s := New(state)
		defer s.Close()
		r.Header.Set("Authorization", "Bearer "+s.Token())
		r.Header.Set("Content-Type", media)
		r.Header.Set("Accept", media)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code == http.StatusInternalServerError || ctx.Err() != nil {
			t.Errorf("%s %s: %d %s", method, target, w.Code, w.Body)
		}
	})
}
