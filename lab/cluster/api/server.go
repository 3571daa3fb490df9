// SPDX-License-Identifier: Apache-2.0

// Package api serves a store as the Kubernetes API, for kube-proxy, kubectl and any other client of Kubernetes.
//
// A table of resources (resources.go) says what is served and how. A request is routed to a resource and a verb
// (routes.go); reading and watching go through a reader, writing through a writer, so that resources that are not in
// the store (Leases, Events) or that are derived from it (Endpoints, ServiceCIDRs) are served by the same code. Objects
// are encoded by the serializers of k8s.io/apimachinery, as in the API server.
package api

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/viplab/viplab/lab/cluster/store"
)

// Server serves the Kubernetes API of one store. It is an http.Handler that wants a bearer token with every request.
type Server struct {
	store     *store.Store
	resources map[schema.GroupVersionResource]*resource
	ordered   []*resource // as discovery lists them
	events    *memory
	authority *authority
	token     string

	ctx  context.Context // of everything that is served; ends with Close
	stop context.CancelFunc

	mu        sync.Mutex
	listening map[*http.Server]struct{}
	running   sync.WaitGroup
}

// New prepares to serve a store. Nothing listens until Serve.
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

// Token returns the bearer token that opens the API.
func (s *Server) Token() string { return s.token }

// Events returns the newest Events that clients have posted, the oldest of them first, one line each.
func (s *Server) Events() []string {
	objs, _ := s.events.list()
	var out []string
	for _, o := range objs {
		out = append(out, store.EventLine(o.(*corev1.Event)))
	}
	return out
}

// Close ends all watches and closes all listeners and connections. The store remains.
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
