// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
)

func addresses(e *corev1.Endpoints) string {
	var out []string
	for _, s := range e.Subsets {
		for _, a := range s.Addresses {
			out = append(out, a.IP)
		}
		for _, a := range s.NotReadyAddresses {
			out = append(out, "("+a.IP+")")
		}
	}
	return strings.Join(out, " ")
}

func TestEndpointsFromSlices(t *testing.T) {
	both := newService("web", "tier")
	both.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicy)
	*both.Spec.IPFamilyPolicy = corev1.IPFamilyPolicyPreferDualStack
	c := newClient(t, store.Config{Stack: lab.Dual}, newNode("n1"), both, newPod("p1", "web"), newPod("p2", "web"))
	const path = "/api/v1/namespaces/default/endpoints"
	s := c.watch("/api/v1/endpoints?" + watchList)
	s.want("ADDED web", "BOOKMARK ")
	begin := c.store.Snapshot().Revision
	if err := store.UpdateStatus(c.store, "default", "p1", store.ReportRunning(true, addr("10.244.1.2"),
		addr("fd00::2"))); err != nil {
		t.Fatal(err)
	}
	if err := store.UpdateStatus(c.store, "default", "p2", store.ReportRunning(false, addr("10.244.1.3"))); err != nil {
		t.Fatal(err)
	}
	e := into[corev1.Endpoints](c.get(path + "/web").want(200))
	if got := addresses(e); got != "10.244.1.2 (10.244.1.3)" {
		t.Errorf("got %s", got)
	}
	if e.Subsets[0].Ports[0].Port != 8080 || e.Labels["tier"] != "yes" || e.Labels[discoveryv1.LabelServiceName] != "" {
		t.Errorf("got ports %v, labels %v", e.Subsets[0].Ports, e.Labels)
	}
	s.want("MODIFIED web")

	// They cannot be changed: they are not there.
	for method, contentType := range map[string]string{"PATCH": "application/merge-patch+json", "PUT": "", "DELETE": ""} {
		c.do(method, path+"/web", contentType, `{"metadata":{"name":"web"}}`).says(403, metav1.StatusReasonForbidden,
			"change those")
	}
	c.post(path, `{"metadata":{"name":"web"}}`).says(403, metav1.StatusReasonForbidden, "change those")

	// Endpoints of one's own win, and when they go, the slices count again.
	own := &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Subsets: []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "192.0.2.1"}},
			Ports: []corev1.EndpointPort{{Port: 80}}}},
	}
	c.apply(own)
	if got := addresses(into[corev1.Endpoints](c.get(path + "/web").want(200))); got != "192.0.2.1" {
		t.Errorf("got %s", got)
	}
	if err := c.store.Delete(store.KindEndpoints, "default", "web"); err != nil {
		t.Fatal(err)
	}
	if got := addresses(&into[corev1.EndpointsList](c.get(path).want(200)).Items[0]); got != "10.244.1.2 (10.244.1.3)" {
		t.Errorf("got %s", got)
	}
	if err := c.store.Delete(store.KindService, "default", "web"); err != nil {
		t.Fatal(err)
	}
	c.get(path + "/web").want(404)

	// A watch that resumes at that revision gets the same events as the watch that continued.
	again := c.watch(fmt.Sprintf("/api/v1/endpoints?watch=1&resourceVersion=%d", begin))
	for last := false; !last; {
		e, _ := again.next()
		if e.Object.Name != "web" {
			t.Fatalf("got %s %s", e.Type, e.Object.Name)
		}
		last = e.Type == "DELETED"
	}
}

// A slice that changes hands changes the Endpoints of two Services; a watch that breaks off between resumes with the
// second.
func TestSliceChangesHands(t *testing.T) {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s",
			Labels: map[string]string{discoveryv1.LabelServiceName: "a"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}},
	}
	c := newClient(t, store.Config{}, slice)
	s := c.watch(fmt.Sprintf("/api/v1/endpoints?watch=1&resourceVersion=%d", c.store.Snapshot().Revision))
	slice = slice.DeepCopy()
	slice.Labels[discoveryv1.LabelServiceName] = "b"
	c.apply(slice)
	first := s.want("DELETED a")
	s.want("ADDED b")
	c.watch("/api/v1/endpoints?watch=1&resourceVersion="+first.Object.ResourceVersion).want("DELETED a", "ADDED b")
}

func TestHandwrittenEndpoints(t *testing.T) {
	c := newClient(t, store.Config{})
	const path = "/api/v1/namespaces/default/endpoints"
	body := `{"metadata":{"name":"db"},"subsets":[{"addresses":[{"ip":"192.0.2.%d"}],"ports":[{"port":5432}]}]}`
	c.do("PUT", path+"/db", "", fmt.Sprintf(body, 1)).want(201)
	c.do("PUT", path+"/db", "", fmt.Sprintf(body, 2)).want(200)
	if got := addresses(into[corev1.Endpoints](c.get(path + "/db").want(200))); got != "192.0.2.2" {
		t.Errorf("got %s", got)
	}
}

func TestEvents(t *testing.T) {
	c := newClient(t, store.Config{})
	const older, newer = "/api/v1/namespaces/default/events", "/apis/events.k8s.io/v1/namespaces/default/events"
	s := c.watch(older + "?" + watchList)
	s.want("BOOKMARK ")
	body := `{"metadata":{"name":"e%d"},"regarding":{"kind":"Node","name":"n1"},"reason":"Starting","note":"number %[1]d",` +
		`"type":"Normal","eventTime":"2024-05-01T12:00:00.000000Z","reportingController":"kube-proxy","action":"StartKubeProxy"}`
	c.accept = protobufType + ", */*"
	e := into[eventsv1.Event](c.post(newer, fmt.Sprintf(body, 0)).want(201))
	if e.Note != "number 0" || e.UID == "" {
		t.Errorf("got %+v", e)
	}
	c.accept = ""
	s.want("ADDED e0")
	core := into[corev1.Event](c.get(older + "/e0").want(200))
	if core.Message != "number 0" || core.InvolvedObject.Name != "n1" || core.Kind != "Event" || core.APIVersion != "v1" {
		t.Errorf("got %+v", core)
	}
	c.do("PATCH", newer+"/e0", "application/merge-patch+json",
		`{"series":{"count":2,"lastObservedTime":"2024-05-01T12:00:01.000000Z"}}`).want(200)
	s.want("MODIFIED e0")
	list := into[eventsv1.EventList](c.get("/apis/events.k8s.io/v1/events").want(200))
	if len(list.Items) != 1 || list.Items[0].Series.Count != 2 || list.Items[0].Kind != "Event" ||
		list.Items[0].APIVersion != "events.k8s.io/v1" {
		t.Errorf("got %+v", list.Items)
	}
	c.watch(newer + "?watch=1").want("ADDED e0")
	if got := c.server.Events(); len(got) != 1 || got[0] != "12:00:01 Normal Node n1 Starting: number 0" {
		t.Errorf("got %q", got)
	}
	for query, want := range map[string]int{"involvedObject.name=n1,involvedObject.kind=Node": 1, "reason=Stopping": 0,
		"type!=Warning": 1} {
		if got := len(into[corev1.EventList](c.get(older + "?fieldSelector=" + query).want(200)).Items); got != want {
			t.Errorf("%s: %d events, want %d", query, got, want)
		}
	}
	for query, want := range map[string]int{"regarding.name=n1,reportingController=kube-proxy": 1,
		"regarding.kind=Pod": 0} {
		if got := len(into[eventsv1.EventList](c.get(newer + "?fieldSelector=" + query).want(200)).Items); got != want {
			t.Errorf("%s: %d events, want %d", query, got, want)
		}
	}
	c.get(newer + "?fieldSelector=involvedObject.name=n1").want(400)
	for i := range maxEvents {
		c.post(newer, fmt.Sprintf(body, i+1)).want(201)
	}
	if got := c.server.Events(); len(got) != maxEvents || !strings.HasSuffix(got[0], "number 1") {
		t.Errorf("%d events are kept, the oldest is %q", len(got), got[0])
	}
	s.want("ADDED e1")
	c.do("DELETE", newer+"/e2", "", "").want(200)
	c.get(older + "/e2").want(404)
	c.post(older, `{"metadata":{}}`).says(422, metav1.StatusReasonInvalid, "name")
}

func TestLeases(t *testing.T) {
	c := newClient(t, store.Config{})
	const path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
	l := into[coordinationv1.Lease](c.post(path, `{"metadata":{"name":"l"},"spec":{"holderIdentity":"a"}}`).want(201))
	put := `{"metadata":{"name":"l","resourceVersion":"%s"},"spec":{"holderIdentity":"%s"}}`
	c.do("PUT", path+"/l", "", fmt.Sprintf(put, l.ResourceVersion, "b")).want(200)
	c.do("PUT", path+"/l", "", fmt.Sprintf(put, l.ResourceVersion, "c")).says(409, metav1.StatusReasonConflict, "modified")
	l = into[coordinationv1.Lease](c.get(path + "/l").want(200))
	if *l.Spec.HolderIdentity != "b" {
		t.Errorf("%s holds the lease, want b", *l.Spec.HolderIdentity)
	}
	s := c.watch(path + "?watch=1&resourceVersion=" + l.ResourceVersion)
	c.do("DELETE", path+"/l?dryRun=All", "", "").want(200)
	c.do("DELETE", path+"/l", "", "").want(200)
	s.want("DELETED l")
}

func TestMemoryForgets(t *testing.T) {
	m := newMemory(corev1.SchemeGroupVersion.WithKind("Event"), corev1.Resource("events"), 2)
	for i := range 20 {
		o := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("e", i)}}
		if _, err := m.edit(store.KeyOf(o), editOptions{}, func(store.Object) (store.Object, error) {
			return o,
				nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	old, err := m.follow(1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.next(); statusOf(err).Code != 410 {
		t.Errorf("got %v, want it to be too old", err)
	}
	_, now := m.list()
	recent, err := m.follow(now - 3)
	if err != nil {
		t.Fatal(err)
	}
	events, err := recent.next()
	if err != nil || len(events) != 3 {
		t.Errorf("got %d events and %v, want 3", len(events), err)
	}
	for i, e := range events {
		if want := now - 2 + uint64(i); e.Revision != want || e.Object.GetResourceVersion() != fmt.Sprint(want) {
			t.Errorf("event %d is at %d, its object at %s; want %d", i, e.Revision, e.Object.GetResourceVersion(), want)
		}
	}
}
