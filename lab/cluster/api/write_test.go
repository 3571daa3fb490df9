// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab/cluster/store"
)

const services = "/api/v1/namespaces/default/services"

const webService = `
apiVersion: v1
kind: Service
metadata: {name: web, labels: {tier: front}}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
`

const webDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: "web:1"}]}
`

func TestCreate(t *testing.T) {
	c := newClient(t, store.Config{})
	s := into[corev1.Service](c.post(services, webService).want(201))
	if s.Namespace != "default" || s.Spec.ClusterIP == "" || s.ResourceVersion == "" {
		t.Errorf("got %+v", s)
	}
	c.post(services, webService).says(409, metav1.StatusReasonAlreadyExists, `services "web" already exists`)

	g := into[corev1.Service](c.post(services, strings.Replace(webService, "name: web", "generateName: web-",
		1)).want(201))
	if !strings.HasPrefix(g.Name, "web-") || len(g.Name) != len("web-")+5 {
		t.Errorf("the generated name is %q", g.Name)
	}
}

func TestCreateRefused(t *testing.T) {
	c := newClient(t, store.Config{})
	change := func(old, new string) string { return strings.Replace(webService, old, new, 1) }
	tests := []struct {
		path, body string
		code       int
		reason     metav1.StatusReason
		words      string
	}{
		{services, "{", 400, metav1.StatusReasonBadRequest, "must be of type Service"},
		{services, "[]", 400, metav1.StatusReasonBadRequest, ""},
		{services, change("kind: Service", "kind: Pod"), 400, metav1.StatusReasonBadRequest,
			"cannot be handled as a Service"},
		{services, change("apiVersion: v1", "apiVersion: apps/v1"), 400, metav1.StatusReasonBadRequest,
			"cannot be handled as a Service"},
		{services, change("name: web", "name: web, namespace: shop"), 400, metav1.StatusReasonBadRequest,
			"does not match the namespace"},
		{services, change("name: web", `name: web, resourceVersion: "1"`), 400, metav1.StatusReasonBadRequest,
			"resourceVersion should not be set"},
		{services, change("name: web", "name: web_1"), 422, metav1.StatusReasonInvalid,
			`Service "web_1" is invalid: metadata.name`},
		{services, change("name: web, ", ""), 422, metav1.StatusReasonInvalid, "name or generateName is required"},
		{services, change("port: 80,", "port: 0,"), 422, metav1.StatusReasonInvalid, "spec.ports[0].port"},
		{services, change("port: 80,", "port: many,"), 400, metav1.StatusReasonBadRequest, "cannot be handled as a Service"},
		{"/api/v1/namespaces/nope/services", webService, 404, metav1.StatusReasonNotFound, `namespaces "nope" not found`},
		{services + "?dryRun=Some", webService, 422, metav1.StatusReasonInvalid, "dryRun"},
		{services + "?fieldValidation=Some", webService, 422, metav1.StatusReasonInvalid, "fieldValidation"},
	}
	for _, test := range tests {
		c.post(test.path, test.body).says(test.code, test.reason, test.words)
	}
	large := `{"metadata":{"name":"large"}}` + strings.Repeat(" ", maxBody)
	c.post(services, large).says(413, metav1.StatusReasonRequestEntityTooLarge, "limit is 3145728")
	c.do("POST", services, "text/plain", webService).says(415, metav1.StatusReasonUnsupportedMediaType, "text/plain")
	if n := len(c.store.Snapshot().Services); n != 0 {
		t.Errorf("%d Services are there, want none", n)
	}
}

// The messages are those of the API server.
func TestFieldValidation(t *testing.T) {
	unknown := strings.Replace(webService, "port: 80,", "port: 80, color: red,", 1)
	twice := strings.Replace(webService, "port: 80,", "port: 80, port: 81,", 1)
	const color = `unknown field "spec.ports[0].color"`
	asJSON := `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web"},"spec":{"ports":[{"port":80,"port":81}]}}`
	tests := []struct {
		level, contentType, body string
		code                     int
		words                    string // of the error or the warning
	}{
		{"Strict", "application/yaml", unknown, 400,
			`Service in version "v1" cannot be handled as a Service: strict decoding error: ` + color},
		{"Strict", "application/yaml", twice, 400, `strict decoding error: yaml: unmarshal errors:`},
		{"Strict", "application/json", asJSON, 400, `strict decoding error: duplicate field "spec.ports[0].port"`},
		{"Warn", "application/yaml", unknown, 201, `299 - "unknown field \"spec.ports[0].color\""`},
		{"", "application/yaml", unknown, 201, `299 - "unknown field \"spec.ports[0].color\""`},
		{"Ignore", "application/yaml", unknown, 201, ""},
	}
	for _, test := range tests {
		c := newClient(t, store.Config{})
		a := c.do("POST", services+"?fieldValidation="+test.level, test.contentType, test.body)
		if test.code != 201 {
			a.says(test.code, metav1.StatusReasonBadRequest, test.words)
			continue
		}
		if got := a.want(201).header.Get("Warning"); got != test.words {
			t.Errorf("%s: the warning is %q, want %q", test.level, got, test.words)
		}
	}
}

func TestCreateInProtobuf(t *testing.T) {
	c := newClient(t, store.Config{})
	c.accept = protobufType
	svc := newService("web")
	svc.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Service"))
	var body strings.Builder
	if err := mediaTypes()[2].Serializer.Encode(svc, &body); err != nil {
		t.Fatal(err)
	}
	s := into[corev1.Service](c.do("POST", services, protobufType, body.String()).want(201))
	if s.Spec.ClusterIP == "" || s.Spec.Ports[0].TargetPort.IntVal != 8080 {
		t.Errorf("got %+v", s)
	}
	c.do("POST", services, protobufType, body.String()).says(409, metav1.StatusReasonAlreadyExists, "web")
}

func TestUpdate(t *testing.T) {
	c := newClient(t, store.Config{}, newService("web"))
	put := func(change func(*corev1.Service)) response {
		s := into[corev1.Service](c.get(services + "/web").want(200))
		change(s)
		body, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return c.do("PUT", services+"/web", "application/json", string(body))
	}
	s := into[corev1.Service](put(func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 }).want(200))
	if s.Spec.Ports[0].Port != 81 || s.Generation != 2 {
		t.Errorf("got port %d, generation %d", s.Spec.Ports[0].Port, s.Generation)
	}
	put(func(s *corev1.Service) { s.ResourceVersion = "1" }).says(409, metav1.StatusReasonConflict,
		"the object has been modified")
	put(func(s *corev1.Service) { s.ResourceVersion, s.Spec.Ports[0].Port = "", 82 }).want(200)
	put(func(s *corev1.Service) { s.UID = "other" }).says(409, metav1.StatusReasonConflict, "uid")
	put(func(s *corev1.Service) { s.Name = "other" }).says(400, metav1.StatusReasonBadRequest,
		"does not match the name on the URL")
	put(func(s *corev1.Service) { s.Spec.Ports = nil }).says(422, metav1.StatusReasonInvalid,
		`Service "web" is invalid: spec.ports`)
	before := c.store.Snapshot().Revision
	put(func(*corev1.Service) {}).want(200)
	if after := c.store.Snapshot().Revision; after != before {
		t.Errorf("an update that changes nothing led from revision %d to %d", before, after)
	}
	// As in Kubernetes, an update creates a Service, and no pod.
	c.do("PUT", services+"/nope", "application/yaml", strings.Replace(webService, "name: web", "name: nope", 1)).want(201)
	c.do("PUT", "/api/v1/namespaces/default/pods/nope", "application/yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: nope}\n"+
		"spec: {containers: [{name: c, image: echo}]}").says(404, metav1.StatusReasonNotFound, "nope")
}

func TestStatus(t *testing.T) {
	c := newClient(t, store.Config{}, newNode("n1"), newPod("p", "web"))
	const pod = "/api/v1/namespaces/default/pods/p"
	body := `{"metadata":{"labels":{"new":"label"}},"status":{"phase":"Running","podIPs":[{"ip":"10.244.1.2"}]}}`
	c.do("PATCH", pod, "application/merge-patch+json", body).want(200)
	p, _ := store.Get[*corev1.Pod](c.store, "default", "p")
	if p.Labels["new"] != "label" || p.Status.PodIP != "" {
		t.Errorf("the main resource took labels %v and address %q; want the label alone", p.Labels, p.Status.PodIP)
	}
	body = strings.Replace(body, "label", "other", 1)
	got := into[corev1.Pod](c.do("PATCH", pod+"/status", "application/merge-patch+json", body).want(200))
	p, _ = store.Get[*corev1.Pod](c.store, "default", "p")
	if p.Labels["other"] != "" || p.Status.PodIP != "10.244.1.2" || got.Status.PodIP != "10.244.1.2" {
		t.Errorf("the status took labels %v and address %q; want the address alone", p.Labels, p.Status.PodIP)
	}
	if s := into[corev1.Pod](c.get(pod + "/status").want(200)); s.Status.Phase != corev1.PodRunning {
		t.Errorf("got phase %s", s.Status.Phase)
	}
	c.do("DELETE", pod+"/status", "", "").want(405)
}

func TestDelete(t *testing.T) {
	c := newClient(t, store.Config{}, newService("a"), newService("b", "x"), newService("c", "x"))
	a, _ := store.Get[*corev1.Service](c.store, "default", "a")
	remove := func(path, body string) response { return c.do("DELETE", path, "application/json", body) }
	remove(services+"/a", `{"preconditions":{"uid":"other"}}`).says(409, metav1.StatusReasonConflict,
		"UID in the precondition")
	remove(services+"/a", `{"preconditions":{"resourceVersion":"1"}}`).says(409, metav1.StatusReasonConflict,
		"ResourceVersion in the precondition")
	remove(services+"/a?dryRun=All", "").want(200)
	remove(services+"/a", `{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"]}`).want(200)
	c.get(services + "/a").want(200)
	// The answer is the last state of a Service, and a Status for most other kinds.
	if s := into[corev1.Service](remove(services+"/a", `{"propagationPolicy":"Background"}`).want(200)); s.UID != a.UID {
		t.Errorf("got %+v", s)
	}
	const policies = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"
	p := into[networkingv1.NetworkPolicy](c.do("POST", policies, "application/yaml",
		"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p}\nspec: {podSelector: {}}").want(201))
	s := into[metav1.Status](remove(policies+"/p", "").want(200))
	if s.Status != metav1.StatusSuccess || s.Details.Name != "p" || s.Details.Kind != "networkpolicies" ||
		s.Details.UID != p.UID {
		t.Errorf("got %+v", s)
	}
	remove(services+"/a", "").says(404, metav1.StatusReasonNotFound, "a")
	remove(services+"/b", "nonsense").want(400)
	remove("/api/v1/namespaces/default", "").says(403, metav1.StatusReasonForbidden, "may not be deleted")

	list := into[corev1.ServiceList](remove(services+"?labelSelector=x&fieldSelector=metadata.name!=b", "").want(200))
	if len(list.Items) != 1 || list.Items[0].Name != "c" {
		t.Errorf("deleted %v, want c", list.Items)
	}
	if left := c.store.Snapshot().Services; len(left) != 1 || left[0].Name != "b" {
		t.Errorf("%d Services are left, want b", len(left))
	}
}

// What belongs to an object goes with it, unless the client wants it to stay.
func TestPropagation(t *testing.T) {
	const path = "/apis/apps/v1/namespaces/default/deployments"
	for body, want := range map[string]int{
		"":                                   0,
		`{"propagationPolicy":"Background"}`: 0,
		`{"propagationPolicy":"Foreground"}`: 0,
		`{"propagationPolicy":"Orphan"}`:     2,
	} {
		c := newClient(t, store.Config{})
		c.post(path, webDeployment).want(201)
		c.do("DELETE", path+"/web", "application/json", body).want(200)
		if pods := c.store.Snapshot().Pods; len(pods) != want {
			t.Errorf("%s: %d pods are left, want %d", body, len(pods), want)
		}
		for _, rs := range c.store.Snapshot().Objects(store.KindReplicaSet) {
			if len(rs.GetOwnerReferences()) > 0 {
				t.Errorf("%s: %s still belongs to %+v", body, rs.GetName(), rs.GetOwnerReferences())
			}
		}
		// A new Deployment of the name adopts them, or makes pods of its own.
		c.post(path, webDeployment).want(201)
		if got := len(c.store.Snapshot().Pods); got != 2 {
			t.Errorf("%s: %d pods then, want 2", body, got)
		}
		c.do("DELETE", path+"/web", "application/json", `{"propagationPolicy":"Odd"}`).says(422, metav1.StatusReasonInvalid,
			"propagationPolicy")
	}
}

func TestDryRun(t *testing.T) {
	c := newClient(t, store.Config{}, newService("old"))
	before := c.store.Snapshot().Revision
	s := into[corev1.Service](c.post(services+"?dryRun=All", webService).want(201))
	if s.Spec.ClusterIP == "" {
		t.Error("a dry run does not allocate")
	}
	patched := into[corev1.Service](c.do("PATCH", services+"/old?dryRun=All", "application/merge-patch+json",
		`{"metadata":{"labels":{"a":"b"}}}`).want(200))
	if patched.Labels["a"] != "b" {
		t.Errorf("the dry run shows %v", patched.Labels)
	}
	c.post(services+"?dryRun=All", strings.Replace(webService, "80", "0", 1)).want(422)
	if after := c.store.Snapshot().Revision; after != before {
		t.Errorf("dry runs led from revision %d to %d", before, after)
	}
}

func TestScale(t *testing.T) {
	c := newClient(t, store.Config{})
	const path = "/apis/apps/v1/namespaces/default/deployments"
	c.post(path, webDeployment).want(201)
	s := into[autoscalingv1.Scale](c.get(path + "/web/scale").want(200))
	if s.Kind != "Scale" || s.Spec.Replicas != 2 || s.Status.Selector != "app=web" {
		t.Errorf("got %+v", s)
	}
	s = into[autoscalingv1.Scale](c.do("PATCH", path+"/web/scale", "application/merge-patch+json",
		`{"spec":{"replicas":3}}`).want(200))
	if s.Spec.Replicas != 3 {
		t.Errorf("got %d", s.Spec.Replicas)
	}
	put := `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"web","resourceVersion":"%s"},"spec":{"replicas":1}}`
	c.do("PUT", path+"/web/scale", "", fmt.Sprintf(put, "1")).says(409, metav1.StatusReasonConflict, "modified")
	c.do("PUT", path+"/web/scale", "", fmt.Sprintf(put, "")).want(200)
	d := into[appsv1.Deployment](c.get(path + "/web").want(200))
	if *d.Spec.Replicas != 1 || len(c.store.Snapshot().Pods) != 1 {
		t.Errorf("%d replicas are wanted and %d pods are there, want 1", *d.Spec.Replicas, len(c.store.Snapshot().Pods))
	}
	c.get(path + "/nope/scale").want(404)
	c.do("DELETE", path+"/web/scale", "", "").want(405)
	c.get(services + "/web/scale").want(404)
}
