// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http/httptest"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab/cluster/store"
)

func TestTokenRequest(t *testing.T) {
	robot := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "robot"}}
	c := newClient(t, store.Config{}, newNode("n1"), robot)
	const path = "/api/v1/namespaces/default/serviceaccounts/robot/token"
	answer := into[authenticationv1.TokenRequest](c.post(path, "{}").want(201))
	if answer.Kind != "TokenRequest" || answer.Name != "robot" || *answer.Spec.ExpirationSeconds != 3600 ||
		answer.Status.ExpirationTimestamp.IsZero() {
		t.Errorf("got %+v", answer)
	}
	for token, want := range map[string]int{answer.Status.Token: 200, answer.Status.Token + "x": 401, "": 401} {
		r := httptest.NewRequest("GET", "/api/v1/nodes", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		c.server.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("token %q: %d, want %d", token, w.Code, want)
		}
	}
	c.post(path, "{spec: {expirationSeconds: 60}}").says(422, metav1.StatusReasonInvalid, "spec.expirationSeconds")
	c.post(path, "{spec: {boundObjectRef: {kind: Pod, name: none}}}").says(404, metav1.StatusReasonNotFound, "none")
	c.post("/api/v1/namespaces/default/serviceaccounts/none/token", "{}").says(404, metav1.StatusReasonNotFound, "none")
	c.get(path).want(405)
	c.post("/api/v1/namespaces/default/configmaps/robot/token", "{}").want(404)
}
