// SPDX-License-Identifier: Apache-2.0

// Package api serves a store as the Kubernetes API, for kube-proxy, kubectl and any other client of Kubernetes.
//
// A table (resources.go) lists the served resources. A request is routed to a resource and a verb (routes.go), reads
// through a reader and writes through a writer, so that resources outside the store (Leases, Events) and derived ones
// (Endpoints) are served by the same code.
package api

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/viplab/viplab/lab/cluster/access"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/netns"
)

// Server serves the Kubernetes API of one store. It is an http.Handler that requires a bearer token with every request.
type Server struct {
	store      *store.Store
	resources  map[schema.GroupVersionResource]*resource
	ordered    []*resource // as discovery lists them
	events     *memory
	authority  *authority
	containers access.Containers // nil: the programs of pods are out of reach
	token      string

	ctx  context.Context // of everything that is served; ends with Close
	stop context.CancelFunc

	mu        sync.Mutex
	listening map[*http.Server]struct{}
	running   sync.WaitGroup
}

// New returns a server for a store. It does not listen until Serve.
func New(state *store.Store) *Server {
	s := &Server{
		store:     state,
		resources: map[schema.GroupVersionResource]*resource{},
		authority: newAuthority(),
		token:     rand.Text(),
		listening: map[*http.Server]struct{}{},
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.addResources()
	return s
}

// CA returns the certificate of the authority that signs those of listeners, in PEM.
func (s *Server) CA() []byte { return s.authority.pem }

// Token returns the bearer token that requests must carry.
func (s *Server) Token() string { return s.token }

// Events returns the most recent Events that clients have posted, one line each, the oldest first.
func (s *Server) Events() []string {
	objs, _ := s.events.list()
	var out []string
	for _, o := range objs {
		out = append(out, store.EventLine(o.(*corev1.Event)))
	}
	return out
}

// Close ends all watches and closes all listeners and connections. It does not affect the store.
func (s *Server) Close() error {
	s.stop()
	s.mu.Lock()
	var errs []error
	for h := range s.listening {
		errs = append(errs, h.Close())
	}
	s.mu.Unlock()
	s.running.Wait()
	return errors.Join(errs...)
}

// Endpoint holds the address and the credentials of a client of the API.
type Endpoint struct {
	URL   string
	CA    []byte // PEM
	Token string
}

// Serve listens for HTTPS on an address inside a namespace until the context ends or Close. For port 0 the kernel
// chooses a port.
func (s *Server) Serve(ctx context.Context, ns *netns.NS, addr string) (*Endpoint, error) {
	return s.ServeWithHandler(ctx, ns, addr, s)
}

// ServeWithHandler is Serve with h as the handler of all requests. h may pass requests on to the Server.
func (s *Server) ServeWithHandler(ctx context.Context, ns *netns.NS, addr string, h http.Handler) (*Endpoint, error) {
	l, err := ns.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: serve the Kubernetes API on %s: %w", ns.Name(), addr, err)
	}
	return s.serveOn(ctx, l, h)
}

// ServeOn serves HTTPS on a listener of the caller until the context ends or Close, and closes it then or on error.
func (s *Server) ServeOn(ctx context.Context, l net.Listener) (*Endpoint, error) {
	return s.serveOn(ctx, l, s)
}

func (s *Server) serveOn(ctx context.Context, l net.Listener, through http.Handler) (*Endpoint, error) {
	host, _, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	certificate, err := s.authority.issue(host, s.store.ServiceCIDRs()...)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	h := &http.Server{
		Handler:     through,
		TLSConfig:   &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    log.New(io.Discard, "", 0), // of clients that end in the middle of a handshake
	}
	if !s.open(h) {
		return nil, errors.Join(errors.New("the API is closed"), l.Close())
	}
	stopped := context.AfterFunc(ctx, func() { _ = h.Close() })
	go func() {
		defer s.forget(h)
		defer stopped()
		_ = h.ServeTLS(l, "", "") // returns when h is closed, and closes l
	}()
	return &Endpoint{URL: "https://" + l.Addr().String(), CA: s.authority.pem, Token: s.token}, nil
}

// open counts a listener as running, unless the server is closed already.
func (s *Server) open(h *http.Server) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.listening[h] = struct{}{}
	s.running.Add(1)
	return true
}

func (s *Server) forget(h *http.Server) {
	s.mu.Lock()
	delete(s.listening, h)
	s.mu.Unlock()
	s.running.Done()
}

// Kubeconfig returns a kubeconfig file with this endpoint as its only cluster, user and context.
func (e *Endpoint) Kubeconfig() []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: viplab
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: viplab
  user:
    token: %s
contexts:
- name: viplab
  context:
    cluster: viplab
    user: viplab
current-context: viplab
`, e.URL, base64.StdEncoding.EncodeToString(e.CA), e.Token)
}

// SetContainers gives clients access to the containers of pods. It must be called before Serve. Without it, requests
// for exec, attach, log, portforward and proxy are answered with 501 Not Implemented.
func (s *Server) SetContainers(c access.Containers) { s.containers = c }
