// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"

	"github.com/viplab/viplab/lab/netns"
)

// Endpoint is what a client needs to reach the API.
type Endpoint struct {
	URL   string
	CA    []byte // PEM
	Token string
}

// Serve listens for HTTPS on an address inside a namespace, for example "127.0.0.1:6443" in each node, until the
// context ends or Close. Port 0 lets the kernel choose; the URL says which.
func (s *Server) Serve(ctx context.Context, ns *netns.NS, addr string) (*Endpoint, error) {
	return s.ServeThrough(ctx, ns, addr, s)
}

// ServeThrough is Serve with a handler that looks at each request before it hands it to the Server, or does not.
func (s *Server) ServeThrough(ctx context.Context, ns *netns.NS, addr string, h http.Handler) (*Endpoint, error) {
	l, err := ns.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: serve the Kubernetes API on %s: %w", ns.Name(), addr, err)
	}
	return s.serveOn(ctx, l, h)
}

func (s *Server) serveOn(ctx context.Context, l net.Listener, through http.Handler) (*Endpoint, error) {
	host, _, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	certificate, err := s.authority.issue(host)
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
