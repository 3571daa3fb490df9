// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
)

const protobufType = "application/vnd.kubernetes.protobuf"

func TestWithoutTheTokenNothingIsServed(t *testing.T) {
	c := newClient(t, store.Config{})
	for _, header := range []string{"", "Bearer", "Bearer wrong", "Basic " + c.server.Token(), c.server.Token()} {
		for _, path := range []string{"/api/v1/nodes", "/version", "/healthz", "/nonsense"} {
			r, err := http.NewRequestWithContext(c.ctx, "GET", c.url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", header)
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s with %q: %s, want 401", path, header, resp.Status)
			}
		}
	}
	c.get("/healthz").want(200)
}

func TestGet(t *testing.T) {
	for _, accept := range []string{"", "application/json", "*/*", "application/*", protobufType + ", */*",
		"text/html;q=0.9, application/json;q=0.5"} {
		c := newClient(t, store.Config{}, newNode("n1"), newService("web"))
		c.accept = accept
		s := into[corev1.Service](c.get("/api/v1/namespaces/default/services/web").want(200))
		if s.Name != "web" || s.Spec.ClusterIP == "" || s.UID == "" || s.Kind != "Service" || s.APIVersion != "v1" {
			t.Errorf("%q: got %+v", accept, s)
		}
		n := into[corev1.Node](c.get("/api/v1/nodes/n1").want(200))
		if n.Name != "n1" || n.Kind != "Node" {
			t.Errorf("%q: got %+v", accept, n)
		}
		c.get("/api/v1/namespaces/default/services/nope").says(404, metav1.StatusReasonNotFound, `services "nope" not found`)
		c.get("/api/v1/namespaces/other/services/web").says(404, metav1.StatusReasonNotFound, `services "web" not found`)
	}
}

func TestWhatIsNotServed(t *testing.T) {
	c := newClient(t, store.Config{}, newService("web"))
	for _, path := range []string{
		"/", "/api/v2", "/api/v1/widgets", "/apis/example.com/v1", "/apis/apps/v1/pods", "/api/v1/services/web",
		"/api/v1/namespaces/default/nodes", "/api/v1/namespaces/default/services/web/exec", "/api/v1//services",
		"/api/v1/namespaces/default/services/web/status/more", "/api/v1/namespaces/default/endpoints/web/status",
	} {
		c.get(path).says(404, metav1.StatusReasonNotFound, "could not find")
	}
	c.accept = "text/html"
	c.get("/api/v1/nodes").says(406, metav1.StatusReasonNotAcceptable, "application/json")
	c.accept = protobufType + ";as=Table;g=meta.k8s.io;v=v1"
	c.get("/api/v1/nodes").want(406)
	c.accept = ""
	c.do("POST", "/api/v1/nodes/n1", "", "{}").says(405, metav1.StatusReasonMethodNotAllowed, "post")
	c.do("PUT", "/api/v1/namespaces/default/services", "", "{}").says(405, metav1.StatusReasonMethodNotAllowed, "put")
}

func TestList(t *testing.T) {
	other := newService("far", "a")
	other.Namespace = "shop"
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	headless := newService("headless", "a")
	headless.Spec.ClusterIP = corev1.ClusterIPNone
	tests := []struct{ path, want string }{
		{"/api/v1/services", "a b headless far"},
		{"/api/v1/namespaces/default/services", "a b headless"},
		{"/api/v1/namespaces/shop/services", "far"},
		{"/api/v1/namespaces/nope/services", ""},
		{"/api/v1/services?labelSelector=a", "a headless far"},
		{"/api/v1/services?labelSelector=!a,!b", ""},
		{"/api/v1/services?labelSelector=a%3Dyes", "a headless far"},
		{"/api/v1/services?labelSelector=a+notin+(yes)", "b"},
		{"/api/v1/services?fieldSelector=spec.clusterIP!=None", "a b far"},
		{"/api/v1/services?fieldSelector=metadata.name=a", "a"},
		{"/api/v1/services?fieldSelector=metadata.namespace=shop,metadata.name=far", "far"},
		{"/api/v1/services?labelSelector=a&fieldSelector=spec.clusterIP!=None&limit=500&resourceVersion=0", "a far"},
		{"/api/v1/services?resourceVersion=1&resourceVersionMatch=NotOlderThan", "a b headless far"},
	}
	for _, accept := range []string{"application/json", protobufType} {
		c := newClient(t, store.Config{}, shop, newService("a", "a"), newService("b", "b"), headless, other)
		c.accept = accept
		for _, test := range tests {
			list := into[corev1.ServiceList](c.get(test.path).want(200))
			var names []string
			for _, s := range list.Items {
				names = append(names, s.Name)
			}
			if got := strings.Join(names, " "); got != test.want {
				t.Errorf("%s: got %s, want %s", test.path, got, test.want)
			}
			if list.Kind != "ServiceList" || list.APIVersion != "v1" || list.ResourceVersion == "" {
				t.Errorf("%s: the list is %v at %q", test.path, list.TypeMeta, list.ResourceVersion)
			}
		}
	}
}

func TestListRefused(t *testing.T) {
	c := newClient(t, store.Config{}, newNode("n1"))
	tests := []struct {
		query  string
		code   int
		reason metav1.StatusReason
		words  string
	}{
		{"labelSelector=a===b", 400, metav1.StatusReasonBadRequest, "label selector"},
		{"fieldSelector=a", 400, metav1.StatusReasonBadRequest, "field selector"},
		{"fieldSelector=spec.color=red", 400, metav1.StatusReasonBadRequest, "field label not supported: spec.color"},
		{"resourceVersion=x", 400, metav1.StatusReasonBadRequest, "Invalid value"},
		{"resourceVersion=1&resourceVersionMatch=Exact", 410, metav1.StatusReasonExpired, "too old"},
		{"resourceVersion=999999", 504, metav1.StatusReasonTimeout, "Too large resource version"},
		{"resourceVersionMatch=Exact", 422, metav1.StatusReasonInvalid, "resourceVersion is provided"},
		{"continue=abc", 410, metav1.StatusReasonExpired, "continue"},
		{"sendInitialEvents=true", 422, metav1.StatusReasonInvalid, "forbidden for list"},
		{"watch=1&sendInitialEvents=true", 422, metav1.StatusReasonInvalid, "resourceVersionMatch"},
		{"watch=1&resourceVersion=x", 400, metav1.StatusReasonBadRequest, "Invalid value"},
		{"includeObject=Some", 400, metav1.StatusReasonBadRequest, "includeObject"},
	}
	for _, test := range tests {
		c.get("/api/v1/nodes?"+test.query).says(test.code, test.reason, test.words)
	}
}

func TestServiceCIDRs(t *testing.T) {
	c := newClient(t, store.Config{Stack: lab.Dual})
	list := into[networkingv1.ServiceCIDRList](c.get("/apis/networking.k8s.io/v1/servicecidrs").want(200))
	if len(list.Items) != 1 || !slices.Equal(list.Items[0].Spec.CIDRs, []string{"10.96.0.0/16", "fd00:10:96::/112"}) {
		t.Errorf("got %+v", list.Items)
	}
	c.accept = protobufType
	s := c.watch("/apis/networking.k8s.io/v1/servicecidrs?watch=1&allowWatchBookmarks=1&sendInitialEvents=1&resourceVersionMatch=NotOlderThan")
	s.want("ADDED kubernetes", "BOOKMARK ")
}

func TestMetadataAlone(t *testing.T) {
	c := newClient(t, store.Config{}, newService("web", "a"))
	for _, mediaType := range []string{"application/json", protobufType} {
		c.accept = mediaType + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
		m := into[metav1.PartialObjectMetadata](c.get("/api/v1/namespaces/default/services/web").want(200))
		if m.Kind != "PartialObjectMetadata" || m.Name != "web" || m.Labels["a"] != "yes" {
			t.Errorf("%s: got %+v", mediaType, m)
		}
		c.accept = mediaType + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
		list := into[metav1.PartialObjectMetadataList](c.get("/api/v1/services").want(200))
		if list.Kind != "PartialObjectMetadataList" || len(list.Items) != 1 || list.ResourceVersion == "" {
			t.Errorf("%s: got %+v", mediaType, list)
		}
	}
}

// The slices that the store made for a Service come back whole, in both formats.
func TestRoundTrip(t *testing.T) {
	for _, accept := range []string{"application/json", protobufType} {
		c := newClient(t, store.Config{}, newNode("n1"), newPod("p", "web"), newService("web"))
		c.run("p", "10.244.1.2")
		c.accept = accept
		list := into[discoveryv1.EndpointSliceList](c.get("/apis/discovery.k8s.io/v1/endpointslices").want(200))
		want := c.store.Snapshot().EndpointSlices
		if len(list.Items) != 1 || len(want) != 1 {
			t.Fatalf("%s: got %d slices of %d, want 1", accept, len(list.Items), len(want))
		}
		got := list.Items[0]
		got.TypeMeta = want[0].TypeMeta
		if !equal(&got, want[0]) {
			t.Errorf("%s: got %+v, want %+v", accept, got, want[0])
		}
	}
}
