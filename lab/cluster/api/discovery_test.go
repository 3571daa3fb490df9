// SPDX-License-Identifier: Apache-2.0

package api

import (
	"slices"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/viplab/viplab/lab/cluster/store"
)

// everything is "group/version resource" of what is served.
var everything = []string{
	"apps/v1 controllerrevisions", "apps/v1 daemonsets", "apps/v1 deployments", "apps/v1 replicasets",
	"apps/v1 statefulsets", "batch/v1 jobs",
	"coordination.k8s.io/v1 leases", "discovery.k8s.io/v1 endpointslices",
	"events.k8s.io/v1 events", "networking.k8s.io/v1 ingressclasses", "networking.k8s.io/v1 ingresses",
	"networking.k8s.io/v1 ipaddresses", "networking.k8s.io/v1 networkpolicies", "networking.k8s.io/v1 servicecidrs",
	"policy/v1 poddisruptionbudgets",
	"v1 configmaps", "v1 endpoints", "v1 events", "v1 namespaces", "v1 nodes", "v1 pods", "v1 secrets",
	"v1 serviceaccounts", "v1 services",
}

func TestDiscovery(t *testing.T) {
	c := newClient(t, store.Config{})
	var got []string
	versions := into[metav1.APIVersions](c.get("/api").want(200)).Versions
	for _, g := range into[metav1.APIGroupList](c.get("/apis").want(200)).Groups {
		versions = append(versions, g.PreferredVersion.GroupVersion)
		if one := into[metav1.APIGroup](c.get("/apis/" + g.Name).want(200)); one.Name != g.Name || one.Kind != "APIGroup" {
			t.Errorf("/apis/%s: got %+v", g.Name, one)
		}
	}
	for _, v := range versions {
		path := "/apis/" + v
		if v == "v1" {
			path = "/api/v1"
		}
		for _, r := range into[metav1.APIResourceList](c.get(path).want(200)).APIResources {
			if !strings.Contains(r.Name, "/") {
				got = append(got, v+" "+r.Name)
			}
			if len(r.Verbs) == 0 || r.Kind == "" {
				t.Errorf("%s %s has no verbs or no kind: %+v", v, r.Name, r)
			}
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, everything) {
		t.Errorf("got %s", strings.Join(got, ", "))
	}
	if v := into[version.Info](c.get("/version").want(200)); v.Major != "1" || !strings.HasPrefix(v.GitVersion, "v1.") {
		t.Errorf("got %+v", v)
	}
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		if a := c.get(path).want(200); string(a.body) != "ok" {
			t.Errorf("%s: got %s", path, a.body)
		}
	}
}

func TestAggregatedDiscovery(t *testing.T) {
	c := newClient(t, store.Config{})
	c.accept = aggregatedType + ",application/json"
	var got []string
	for _, path := range []string{"/api", "/apis"} {
		a := c.get(path).want(200)
		if h := a.header.Get("Content-Type"); h != aggregatedType {
			t.Errorf("%s: the content type is %s", path, h)
		}
		for _, g := range into[apidiscoveryv2.APIGroupDiscoveryList](a).Items {
			for _, v := range g.Versions {
				for _, r := range v.Resources {
					got = append(got, strings.TrimPrefix(g.Name+"/"+v.Version+" "+r.Resource, "/"))
					if r.Resource == "deployments" && len(r.Subresources) != 2 {
						t.Errorf("deployments have the subresources %+v", r.Subresources)
					}
				}
			}
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, everything) {
		t.Errorf("got %s", strings.Join(got, ", "))
	}
	c.accept = "application/json"
	if l := into[metav1.APIGroupList](c.get("/apis").want(200)); l.Kind != "APIGroupList" {
		t.Errorf("got %+v", l)
	}
}

// What kubectl looks for: that a PATCH of each kind knows fieldValidation.
func TestOpenAPI(t *testing.T) {
	c := newClient(t, store.Config{})
	index := into[struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}](c.get("/openapi/v3").want(200))
	page := into[struct {
		Paths map[string]map[string]struct {
			Kind       struct{ Group, Version, Kind string } `json:"x-kubernetes-group-version-kind"`
			Parameters []struct{ Name string }
		}
	}](c.get(index.Paths["apis/apps/v1"].ServerRelativeURL).want(200))
	found := false
	for path, operations := range page.Paths {
		for _, p := range operations["patch"].Parameters {
			found = found || operations["patch"].Kind.Kind == "Deployment" && p.Name == "fieldValidation" &&
				strings.Contains(path, "{namespace}/deployments")
		}
	}
	if !found {
		t.Errorf("no PATCH of Deployments with fieldValidation: %+v", page)
	}
	c.get("/openapi/v3/apis/example.com/v1").want(404)
	c.accept = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf, application/json"
	if a := c.get("/openapi/v2").want(200); !slices.Equal(a.body, emptySwagger) {
		t.Errorf("got %q", a.body)
	}
	c.accept = ""
	if v := into[struct{ Swagger string }](c.get("/openapi/v2").want(200)); v.Swagger != "2.0" {
		t.Errorf("got %+v", v)
	}
}
