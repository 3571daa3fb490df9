// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	utilproxy "k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab/cluster/store"
)

// proxyPod serves pods/[SCHEME:]NAME[:PORT]/proxy: it passes requests on to a port of a pod, by default the first port
// of its containers, or 80.
func (s *Server) proxyPod(w http.ResponseWriter, r *request) error {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(r.key.Name)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid pod request %q", r.key.Name))
	}
	r.key.Name = name
	pod, err := s.scheduled(r)
	if err != nil {
		return err
	}
	number, err := podPort(pod, port)
	if err != nil {
		return err
	}
	return s.proxy(w, r, scheme, r.key, number)
}

func podPort(pod *corev1.Pod, port string) (uint16, error) {
	if n, err := strconv.ParseUint(port, 10, 16); err == nil && n > 0 {
		return uint16(n), nil
	}
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if port == "" || p.Name == port {
				return uint16(p.ContainerPort), nil
			}
		}
	}
	if port == "" {
		return 80, nil
	}
	return 0, apierrors.NewBadRequest(fmt.Sprintf("pod %s has no port %q", pod.Name, port))
}

// proxyService serves services/[SCHEME:]NAME[:PORT]/proxy: it passes requests on to a ready endpoint of a port, given
// by name or number, by default that without a name.
func (s *Server) proxyService(w http.ResponseWriter, r *request) error {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(r.key.Name)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid service request %q", r.key.Name))
	}
	if s.containers == nil {
		return errNoContainers
	}
	r.key.Name = name
	svc, ok := store.Get[*corev1.Service](s.store, r.key.Namespace, name)
	if !ok {
		return notFound(r.resource.gr(), name)
	}
	for _, p := range svc.Spec.Ports {
		if strconv.Itoa(int(p.Port)) == port {
			port = p.Name
		}
	}
	pod, number, ok := s.endpointOf(r.key, port)
	if !ok {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", name))
	}
	return s.proxy(w, r, scheme, pod, number)
}

// endpointOf draws one of the ready pods behind the port of a Service.
func (s *Server) endpointOf(service store.Key, portName string) (pod store.Key, port uint16, ok bool) {
	found := 0
	for _, slice := range s.store.Snapshot().EndpointSlices {
		if slice.Namespace != service.Namespace || slice.Labels[discoveryv1.LabelServiceName] != service.Name {
			continue
		}
		for _, p := range slice.Ports {
			if ptr.Deref(p.Name, "") != portName || p.Port == nil {
				continue
			}
			for _, e := range slice.Endpoints {
				if e.TargetRef == nil || e.TargetRef.Kind != string(store.KindPod) || !ptr.Deref(e.Conditions.Ready, true) {
					continue
				}
				if found++; rand.IntN(found) == 0 {
					pod, port = store.Key{Namespace: slice.Namespace, Name: e.TargetRef.Name}, uint16(*p.Port)
				}
			}
		}
	}
	return pod, port, found > 0
}

// proxy passes a request on to a port of a pod. Absolute links of HTML pages in the reply lead through the proxy. A
// server's TLS certificate is not verified. All of this is as in Kubernetes.
func (s *Server) proxy(w http.ResponseWriter, r *request, scheme string, pod store.Key, port uint16) error {
	if r.path == "" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		to := *r.URL // relative links of the page begin here
		to.Path, to.RawPath = to.Path+"/", ""
		http.Redirect(w, r.Request, to.String(), http.StatusMovedPermanently)
		return nil
	}
	if scheme == "" {
		scheme = "http"
	}
	prefix, _ := strings.CutSuffix(r.URL.EscapedPath(), r.path)
	transport := &utilproxy.Transport{PathPrepend: prefix, RoundTripper: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return s.containers.Dial(ctx, pod, port)
		},
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see above
		DisableKeepAlives: true,
	}}
	var failed error
	forward := &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			host := net.JoinHostPort(strings.ReplaceAll(pod.Name, "/", "."), strconv.Itoa(int(port)))
			p.Out.URL = &url.URL{Scheme: scheme, Host: host, RawQuery: r.URL.RawQuery}
			p.Out.URL.Path, p.Out.URL.RawPath = unescaped(r.path), r.path
			p.Out.Host = ""
			p.Out.Header.Del("Authorization") // the token is for this server
			p.SetXForwarded()
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err },
	}
	s.upgrade(w, r.Request, func(w http.ResponseWriter, req *http.Request) { forward.ServeHTTP(w, req) })
	if failed != nil {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("error trying to reach port %d of pod %s: %v", port, pod,
			failed))
	}
	return nil
}

func unescaped(path string) string {
	if p, err := url.PathUnescape(path); err == nil {
		return p
	}
	return path
}
