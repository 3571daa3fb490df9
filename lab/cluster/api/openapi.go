// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

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
		"x-kubernetes-group-version-kind": map[string]string{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind},
		"parameters":                      parameters,
		"responses":                       map[string]any{"200": map[string]string{"description": "OK"}},
	}
}
