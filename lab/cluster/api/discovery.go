// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"runtime"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/utils/ptr"
)

// release is the version of Kubernetes whose API this is.
const major, minor, release = "1", "36", "v1.36.0+viplab"

func (s *Server) serveVersion(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, "application/json", version.Info{
		Major: major, Minor: minor, GitVersion: release, GitTreeState: "clean",
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	})
}

// serveCoreVersions answers /api: which versions of the core group there are, or all its resources at once.
func (s *Server) serveCoreVersions(w http.ResponseWriter, r *http.Request) {
	if wantsAggregated(r) {
		s.writeAggregated(w, func(gv schema.GroupVersion) bool { return gv.Group == "" })
		return
	}
	writeJSON(w, "application/json", &metav1.APIVersions{
		TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"},
		Versions: []string{"v1"},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{
			{ClientCIDR: "0.0.0.0/0", ServerAddress: r.Host},
		},
	})
}

// serveGroups answers /apis: which groups there are besides the core group, or all their resources at once.
func (s *Server) serveGroups(w http.ResponseWriter, r *http.Request) {
	named := func(gv schema.GroupVersion) bool { return gv.Group != "" }
	if wantsAggregated(r) {
		s.writeAggregated(w, named)
		return
	}
	list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, gv := range s.groupVersions() {
		if named(gv) {
			list.Groups = append(list.Groups, groupOf(gv))
		}
	}
	writeJSON(w, "application/json", list)
}

func groupOf(gv schema.GroupVersion) metav1.APIGroup {
	v := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
	return metav1.APIGroup{Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v}
}

// discoveryPage answers /api/v1, /apis/GROUP and /apis/GROUP/VERSION; nil if that is not served.
func (s *Server) discoveryPage(gv schema.GroupVersion) http.HandlerFunc {
	all := s.groupVersions()
	if gv.Version == "" {
		i := slices.IndexFunc(all, func(v schema.GroupVersion) bool { return v.Group == gv.Group })
		if i < 0 {
			return nil
		}
		return func(w http.ResponseWriter, _ *http.Request) {
			g := groupOf(all[i])
			g.Kind, g.APIVersion = "APIGroup", "v1"
			writeJSON(w, "application/json", &g)
		}
	}
	if !slices.Contains(all, gv) {
		return nil
	}
	return func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, "application/json", s.resourceList(gv)) }
}

func (s *Server) resourceList(gv schema.GroupVersion) *metav1.APIResourceList {
	list := &metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String(),
		APIResources: []metav1.APIResource{},
	}
	for _, r := range s.served(gv) {
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: r.plural, SingularName: r.singular, Namespaced: r.namespaced, Kind: r.gvk.Kind,
			Verbs: r.verbs(), ShortNames: r.short, Categories: r.categories,
		})
		for _, sub := range r.subresources() {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: r.plural + "/" + sub.name, Namespaced: r.namespaced, Kind: sub.gvk.Kind,
				Group: sub.gvk.Group, Version: sub.gvk.Version, Verbs: sub.verbs,
			})
		}
	}
	return list
}

type subresource struct {
	name  string
	gvk   schema.GroupVersionKind
	verbs []string
}

func (r *resource) subresources() []subresource {
	var out []subresource
	verbs := []string{"get", "patch", "update"}
	if r.status {
		out = append(out, subresource{"status", r.gvk, verbs})
	}
	if r.scale {
		out = append(out, subresource{"scale", scaleKind, verbs})
	}
	stream, all := []string{"create", "get"}, []string{"create", "delete", "get", "patch", "update"}
	switch r.gvk {
	case corev1.SchemeGroupVersion.WithKind("Pod"):
		return append(out,
			subresource{"attach", core("PodAttachOptions").WithVersion("v1"), stream},
			subresource{"eviction", evictionKind, []string{"create"}},
			subresource{"exec", core("PodExecOptions").WithVersion("v1"), stream},
			subresource{"log", r.gvk, []string{"get"}},
			subresource{"portforward", core("PodPortForwardOptions").WithVersion("v1"), stream},
			subresource{"proxy", core("PodProxyOptions").WithVersion("v1"), all})
	case corev1.SchemeGroupVersion.WithKind("Node"):
		return append(out, subresource{"proxy", core("NodeProxyOptions").WithVersion("v1"), all})
	case corev1.SchemeGroupVersion.WithKind("ServiceAccount"):
		return append(out, subresource{"token", tokenKind, []string{"create"}})
	case corev1.SchemeGroupVersion.WithKind("Service"):
		return append(out, subresource{"proxy", core("ServiceProxyOptions").WithVersion("v1"), all})
	}
	return out
}

// Aggregated discovery tells about all groups in one answer.
const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

func wantsAggregated(r *http.Request) bool {
	for _, c := range accepted(r) {
		if c.mediaType == "application/json" && c.params["as"] == "APIGroupDiscoveryList" &&
			c.params["g"] == "apidiscovery.k8s.io" && c.params["v"] == "v2" {
			return true
		}
		if c.mediaType == "application/json" && c.params["as"] == "" {
			return false
		}
	}
	return false
}

func (s *Server) writeAggregated(w http.ResponseWriter, of func(schema.GroupVersion) bool) {
	list := &apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"},
		Items:    []apidiscoveryv2.APIGroupDiscovery{},
	}
	for _, gv := range s.groupVersions() {
		if of(gv) {
			g := apidiscoveryv2.APIGroupDiscovery{Versions: []apidiscoveryv2.APIVersionDiscovery{s.aggregated(gv)}}
			g.Name = gv.Group
			list.Items = append(list.Items, g)
		}
	}
	writeJSON(w, aggregatedType, list)
}

func (s *Server) aggregated(gv schema.GroupVersion) apidiscoveryv2.APIVersionDiscovery {
	out := apidiscoveryv2.APIVersionDiscovery{Version: gv.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
	for _, r := range s.served(gv) {
		scope := apidiscoveryv2.ScopeCluster
		if r.namespaced {
			scope = apidiscoveryv2.ScopeNamespace
		}
		d := apidiscoveryv2.APIResourceDiscovery{
			Resource: r.plural, SingularResource: r.singular, ShortNames: r.short, Categories: r.categories,
			ResponseKind: ptr.To(metav1.GroupVersionKind(r.gvk)), Scope: scope, Verbs: r.verbs(),
		}
		for _, sub := range r.subresources() {
			d.Subresources = append(d.Subresources, apidiscoveryv2.APISubresourceDiscovery{
				Subresource: sub.name, ResponseKind: ptr.To(metav1.GroupVersionKind(sub.gvk)), Verbs: sub.verbs,
			})
		}
		out.Resources = append(out.Resources, d)
	}
	return out
}

// The OpenAPI pages say which parameters requests take, and no schemas. That is what kubectl looks for before it leaves
// the validation of manifests to the server; how to merge patches of built-in kinds it knows itself.

// swaggerProtobuf is what kubectl accepts. The standard library does not parse it: RFC 9110 has no "@" in media types.
const swaggerProtobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"

// emptySwagger is an OpenAPI v2 document in protobuf without definitions: field 1 (swagger) is "2.0".
var emptySwagger = []byte{0x0a, 0x03, '2', '.', '0'}

func (s *Server) serveOpenAPI2(w http.ResponseWriter, r *http.Request) {
	for _, header := range r.Header.Values("Accept") {
		if strings.Contains(header, swaggerProtobuf) {
			w.Header().Set("Content-Type", swaggerProtobuf)
			_, _ = w.Write(emptySwagger)
			return
		}
	}
	writeJSON(w, "application/json", map[string]any{"swagger": "2.0", "info": apiInfo, "paths": map[string]any{}})
}

var apiInfo = map[string]string{"title": "viplab", "version": release}

func (s *Server) serveOpenAPI3(w http.ResponseWriter, _ *http.Request) {
	paths := map[string]any{}
	for _, gv := range s.groupVersions() {
		paths[groupPath(gv)] = map[string]string{"serverRelativeURL": "/openapi/v3/" + groupPath(gv)}
	}
	writeJSON(w, "application/json", map[string]any{"paths": paths})
}

func groupPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.String()
}

// openAPI3Page answers /openapi/v3/api/v1 and /openapi/v3/apis/GROUP/VERSION; nil if that is not served.
func (s *Server) openAPI3Page(path string) http.HandlerFunc {
	for _, gv := range s.groupVersions() {
		if groupPath(gv) == path {
			return func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, "application/json", s.openAPI3(gv)) }
		}
	}
	return nil
}

func (s *Server) openAPI3(gv schema.GroupVersion) map[string]any {
	paths := map[string]any{}
	for _, r := range s.served(gv) {
		path := "/" + groupPath(gv) + "/"
		if r.namespaced {
			path += "namespaces/{namespace}/"
		}
		if r.writer == nil {
			continue
		}
		paths[path+r.plural] = map[string]any{"post": operationOn(r.gvk, "post")}
		paths[path+r.plural+"/{name}"] = map[string]any{"put": operationOn(r.gvk, "put"),
			"patch": operationOn(r.gvk, "patch")}
	}
	return map[string]any{"openapi": "3.0.0", "info": apiInfo, "paths": paths}
}

func operationOn(gvk schema.GroupVersionKind, action string) map[string]any {
	var parameters []any
	for _, name := range []string{"dryRun", "fieldManager", "fieldValidation"} {
		parameters = append(parameters, map[string]any{
			"name": name, "in": "query", "schema": map[string]any{"type": "string", "uniqueItems": true},
		})
	}
	return map[string]any{
		"x-kubernetes-action":             action,
		"x-kubernetes-group-version-kind": metav1.GroupVersionKind(gvk),
		"parameters":                      parameters,
		"responses":                       map[string]any{"200": map[string]string{"description": "OK"}},
	}
}
