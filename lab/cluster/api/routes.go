// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/viplab/viplab/lab/cluster/store"
)

// request is an HTTP request for a resource.
type request struct {
	*http.Request
	resource *resource
	key      store.Key // the name is empty if all objects are meant; the namespace is, if those of all namespaces are
	sub      string    // subresource, or empty
	path     string    // what follows the subresource proxy in the URL: "/..." as it was escaped, or empty
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.authorized(r) {
		s.fail(w, r, apierrors.NewUnauthorized("Unauthorized"))
		return
	}
	if page := s.page(r.URL.Path); page != nil {
		page(w, r)
		return
	}
	req, err := s.route(r)
	if err == nil {
		err = s.dispatch(w, req)
	}
	if err != nil {
		s.fail(w, r, err)
	}
}

// page returns the page of a path that is not a resource.
func (s *Server) page(path string) http.HandlerFunc {
	switch path := strings.TrimSuffix(path, "/"); path {
	case "/healthz", "/livez", "/readyz":
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }
	case "/metrics":
		return s.serveMetrics
	case "/version":
		return s.serveVersion
	case "/api":
		return s.serveCoreVersions
	case "/apis":
		return s.serveGroups
	case "/openapi/v2":
		return s.serveOpenAPI2
	case "/openapi/v3":
		return s.serveOpenAPI3
	default:
		if rest, ok := strings.CutPrefix(path, "/openapi/v3/"); ok {
			return s.openAPI3Page(rest)
		}
		gv, rest, ok := cutGroupVersion(path)
		if ok && rest == "" {
			return s.discoveryPage(gv)
		}
		return nil
	}
}

// cutGroupVersion splits "/apis/apps/v1/deployments" into the group, the version (none in "/apis/apps") and the rest.
func cutGroupVersion(path string) (gv schema.GroupVersion, rest string, ok bool) {
	if after, core := strings.CutPrefix(path, "/api/"); core {
		gv.Version, rest, _ = strings.Cut(after, "/")
		return gv, rest, true
	}
	after, ok := strings.CutPrefix(path, "/apis/")
	if !ok {
		return gv, "", false
	}
	gv.Group, after, _ = strings.Cut(after, "/")
	gv.Version, rest, _ = strings.Cut(after, "/")
	return gv, rest, true
}

var errNoSuchPath = &statusError{code: http.StatusNotFound, reason: "NotFound",
	message: "the server could not find the requested resource"}

// proxyPath matches the URLs that go on behind the name of a subresource.
var proxyPath = regexp.MustCompile(`^(/api/v1/(?:nodes|namespaces/[^/]+/(?:pods|services))/[^/]+/proxy)(?:/|$)`)

// restOf returns a path without its first steps: "/c/d" of "/a/b/c/d" and 2.
func restOf(path string, steps int) string {
	for range steps {
		i := strings.IndexByte(path[1:], '/')
		if i < 0 {
			return ""
		}
		path = path[i+1:]
	}
	return path
}

// route returns the resource of a URL.
func (s *Server) route(r *http.Request) (*request, error) {
	out := &request{Request: r}
	path := strings.TrimSuffix(r.URL.Path, "/")
	if m := proxyPath.FindStringSubmatchIndex(r.URL.Path); m != nil {
		path = r.URL.Path[:m[3]]
		out.path = restOf(r.URL.EscapedPath(), strings.Count(path, "/"))
	}
	gv, rest, ok := cutGroupVersion(path)
	if !ok {
		return nil, errNoSuchPath
	}
	parts := strings.Split(rest, "/")
	if slices.Contains(parts, "") {
		return nil, errNoSuchPath
	}
	// Below /namespaces/NAME are the resources in it, unless what follows is a subresource of the Namespace itself.
	if parts[0] == "namespaces" && len(parts) > 2 && (gv.Group != "" || s.resources[gv.WithResource(parts[2])] != nil) {
		out.key.Namespace = parts[1]
		parts = parts[2:]
	}
	out.resource = s.resources[gv.WithResource(parts[0])]
	if out.resource == nil || len(parts) > 3 || out.key.Namespace != "" && !out.resource.namespaced {
		return nil, errNoSuchPath
	}
	if len(parts) > 1 {
		out.key.Name = parts[1]
	}
	if len(parts) > 2 {
		out.sub = parts[2]
	}
	if out.resource.namespaced && out.key.Namespace == "" && (out.key.Name != "" || r.Method == http.MethodPost) {
		return nil, errNoSuchPath
	}
	return out, nil
}

// dispatch serves a request, or returns an error.
func (s *Server) dispatch(w http.ResponseWriter, r *request) error {
	one := r.key.Name != ""
	switch r.sub {
	case "":
	case "status":
		if !r.resource.status {
			return errNoSuchPath
		}
	case "scale":
		if !r.resource.scale {
			return errNoSuchPath
		}
		return s.scale(w, r)
	default:
		serve := s.connections(r)
		if serve == nil {
			return errNoSuchPath
		}
		return serve(w, r)
	}
	if r.Method == http.MethodGet {
		return s.read(w, r)
	}
	if r.resource.writer == nil {
		return notAllowed(r)
	}
	switch {
	case r.Method == http.MethodPost && !one:
		return s.create(w, r)
	case r.Method == http.MethodPut && one:
		return s.update(w, r)
	case r.Method == http.MethodPatch && one:
		return s.patch(w, r)
	case r.Method == http.MethodDelete && r.sub == "" && one:
		return s.delete(w, r)
	case r.Method == http.MethodDelete && r.sub == "":
		return s.deleteCollection(w, r)
	default:
		return notAllowed(r)
	}
}

// connections returns what serves a subresource of its own kind; nil if there is no such subresource.
func (s *Server) connections(r *request) func(http.ResponseWriter, *request) error {
	switch r.resource.gvk.Kind + "/" + r.sub {
	case "Pod/exec", "Pod/attach":
		return s.execute
	case "Pod/eviction":
		return s.evict
	case "ServiceAccount/token":
		return s.requestToken
	case "Pod/log":
		return s.logs
	case "Pod/portforward":
		return s.portForward
	case "Pod/proxy":
		return s.proxyPod
	case "Service/proxy":
		return s.proxyService
	case "Node/proxy":
		return s.proxyNode
	default:
		return nil
	}
}

func notAllowed(r *request) error {
	return apierrors.NewMethodNotSupported(r.resource.gr(), strings.ToLower(r.Method))
}
