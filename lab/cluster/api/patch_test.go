// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/viplab/viplab/lab/cluster/store"
)

func TestPatch(t *testing.T) {
	two := newService("web", "a")
	two.Spec.Ports[0].Name = "http"
	tests := []struct{ name, kind, patch, want string }{
		{"merge", "merge", `{"metadata":{"labels":{"a":null,"b":"c"}}}`, `labels map[b:c]`},
		{"merge replaces lists", "merge", `{"spec":{"ports":[{"name":"dns","port":53,"protocol":"UDP"}]}}`,
			`ports dns/53/UDP`},
		{"strategic merges lists by key", "strategic-merge",
			`{"spec":{"ports":[{"name":"dns","port":53,"protocol":"UDP"}]}}`, `ports dns/53/UDP http/80/TCP`},
		{"strategic deletes from lists", "strategic-merge",
			`{"spec":{"ports":[{"$patch":"delete","port":80},{"name":"dns","port":53,"protocol":"UDP"}]}}`, `ports dns/53/UDP`},
		{"strategic changes an item", "strategic-merge", `{"spec":{"ports":[{"port":80,"name":"web"}]}}`, `ports web/80/TCP`},
		{"json", "json", `[{"op":"test","path":"/spec/ports/0/port","value":80},{"op":"replace","path":"/spec/ports/0/port","value":81}]`, `ports http/81/TCP`},
		{"json with an escape", "json", `[{"op":"add","path":"/metadata/labels/x~1y","value":"z"}]`,
			`labels map[a:yes x/y:z]`},
	}
	for _, test := range tests {
		c := newClient(t, store.Config{}, two)
		s := into[corev1.Service](c.do("PATCH", services+"/web", "application/"+test.kind+"-patch+json",
			test.patch).want(200))
		if got := summary(s); !strings.Contains(got, test.want) {
			t.Errorf("%s: got %s, want %s", test.name, got, test.want)
		}
		stored, _ := store.Get[*corev1.Service](c.store, "default", "web")
		if summary(stored) != summary(s) {
			t.Errorf("%s: stored %s, answered %s", test.name, summary(stored), summary(s))
		}
	}
}

func TestPatchRefused(t *testing.T) {
	c := newClient(t, store.Config{}, newService("web"))
	tests := []struct {
		kind, patch string
		code        int
		reason      metav1.StatusReason
		words       string
	}{
		{"merge", `{`, 400, metav1.StatusReasonBadRequest, "decoding patch"},
		{"merge", `{"spec":{"color":"red"}}`, 422, metav1.StatusReasonInvalid,
			`strict decoding error: unknown field "spec.color"`},
		{"strategic-merge", `{"spec":{"color":"red"}}`, 422, metav1.StatusReasonInvalid,
			`strict decoding error: unknown field "spec.color"`},
		{"merge", `{"spec":{"type":"NodePort","type":"ClusterIP"}}`, 400, metav1.StatusReasonBadRequest,
			`duplicate field "spec.type"`},
		{"merge", `{"spec":{"ports":1}}`, 422, metav1.StatusReasonInvalid, "patch"},
		{"merge", `{"metadata":{"name":"other"}}`, 400, metav1.StatusReasonBadRequest, "does not match the name"},
		{"merge", `{"metadata":{"resourceVersion":"1"}}`, 409, metav1.StatusReasonConflict, "modified"},
		{"merge", `{"spec":{"type":"Odd"}}`, 422, metav1.StatusReasonInvalid, "spec.type"},
		{"merge", `{"kind":"Pod"}`, 422, metav1.StatusReasonInvalid, "it makes a Pod of a Service"},
		{"merge", `{"apiVersion":"apps/v1","kind":"Deployment"}`, 422, metav1.StatusReasonInvalid,
			"it makes a Deployment of a Service"},
		{"json", `{}`, 400, metav1.StatusReasonBadRequest, "cannot unmarshal object"},
		{"json", `[{"op":"jump","path":"/a"}]`, 422, metav1.StatusReasonInvalid, "jump"},
		{"json", `[{"op":"test","path":"/spec/type","value":"NodePort"}]`, 422, metav1.StatusReasonInvalid,
			"testing value /spec/type failed"},
		{"json", `[{"op":"remove","path":"/spec/nothing"}]`, 422, metav1.StatusReasonInvalid, "nonexistent key: nothing"},
		{"strategic-merge", `[]`, 400, metav1.StatusReasonBadRequest, ""},
	}
	for _, test := range tests {
		a := c.do("PATCH", services+"/web?fieldValidation=Strict", "application/"+test.kind+"-patch+json", test.patch)
		a.says(test.code, test.reason, test.words)
	}
	c.do("PATCH", services+"/nope", "application/merge-patch+json", `{}`).says(404, metav1.StatusReasonNotFound, "nope")
	c.do("PATCH", services+"/web", "application/json", `{}`).says(415, metav1.StatusReasonUnsupportedMediaType,
		"merge-patch+json")
	c.do("PATCH", services+"/web", "", `{}`).want(415)
}

func TestApplyPatch(t *testing.T) {
	c := newClient(t, store.Config{})
	const path = services + "/web?fieldManager=test&force=true&fieldValidation=Strict"
	const yaml = "application/apply-patch+yaml"
	a := c.do("PATCH", path, yaml, webService).want(201)
	if got := a.header.Get("Warning"); !strings.Contains(got, "merges fields, replaces lists") {
		t.Errorf("the warning is %q", got)
	}
	s := into[corev1.Service](c.do("PATCH", path, yaml, strings.Replace(webService, "front", "back", 1)).want(200))
	if s.Labels["tier"] != "back" || s.Spec.ClusterIP == "" {
		t.Errorf("got %s", summary(s))
	}
	// What makes two ports different is port and protocol, not the number alone.
	dns := strings.Replace(webService, "{port: 80, targetPort: 8080}",
		"{name: a, port: 53, protocol: UDP}, {name: b, port: 53, protocol: TCP}", 1)
	for range 2 {
		s = into[corev1.Service](c.do("PATCH", path, yaml, dns).want(200))
		if got := summary(s); !strings.HasSuffix(got, "ports a/53/UDP b/53/TCP") {
			t.Errorf("got %s", got)
		}
	}
	c.do("PATCH", services+"/web", yaml, webService).says(422, metav1.StatusReasonInvalid, "fieldManager")
	c.do("PATCH", path, yaml, strings.Replace(webService, "port: 80,", "port: 80, color: red,", 1)).says(422,
		metav1.StatusReasonInvalid, "color")
	c.do("PATCH", services+"/new?fieldManager=test", yaml, webService).says(400, metav1.StatusReasonBadRequest, "name")
}

// Two who write their own conditions of a node do not undo each other.
func TestApplyStatus(t *testing.T) {
	c := newClient(t, store.Config{}, newNode("n1"))
	for _, condition := range []string{"Ready", "NetworkUnavailable", "Ready"} {
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"},"status":{"conditions":[{"type":"%s","status":"True"}]}}`, condition)
		c.do("PATCH", "/api/v1/nodes/n1/status?fieldManager=test", "application/apply-patch+yaml", body).want(200)
	}
	n, _ := store.Get[*corev1.Node](c.store, "", "n1")
	if len(n.Status.Conditions) != 2 {
		t.Errorf("the conditions are %+v", n.Status.Conditions)
	}
}

// summary returns what the tests of patches look at.
func summary(s *corev1.Service) string {
	var ports []string
	for _, p := range s.Spec.Ports {
		ports = append(ports, strings.Join([]string{p.Name, jsonOf(p.Port), string(p.Protocol)}, "/"))
	}
	return "labels " + strings.ReplaceAll(jsonLabels(s.Labels), ",", " ") + " ports " + strings.Join(ports, " ")
}

func jsonLabels(m map[string]string) string { return "map[" + pairsWith(m, ":") + "]" }

func pairsWith(m map[string]string, colon string) string {
	return strings.ReplaceAll(labels.FormatLabels(m), "=", colon)
}

func jsonOf(v any) string {
	text, _ := json.Marshal(v) // of a number
	return string(text)
}
