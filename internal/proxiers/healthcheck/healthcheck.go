// SPDX-License-Identifier: Apache-2.0

// Package healthcheck serves the health check ports of Services: HTTP ports by which load balancers learn which nodes
// have endpoints of a Service with externalTrafficPolicy Local.
package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/internal/proxiers/nodeaddr"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
)

// Check is what a health check port reports.
type Check struct {
	Namespace, Name string
	Port            uint16
	// LocalEndpoints is the number of ready endpoints on the node; 0 means unhealthy.
	LocalEndpoints int
}

// Server serves the health check ports of a node and family. Its methods are not called concurrently.
type Server struct {
	taken   func(Check, error)
	healthy func() bool
	ns      *netns.NS
	ip      lab.Family
	open    map[netip.AddrPort]*port
}

// New makes a server without ports. Every Sync calls taken for each port that another program has. healthy reports
// whether the proxier itself is healthy; ports call it concurrently.
func New(ns *netns.NS, f lab.Family, healthy func() bool, taken func(Check, error)) *Server {
	return &Server{taken: taken, healthy: healthy, ns: ns, ip: f, open: map[netip.AddrPort]*port{}}
}

// Sync opens, closes and updates the ports. They listen on the given addresses, nil meaning all. A port that is taken
// does not hold up the others.
func (s *Server) Sync(ctx context.Context, checks []Check, addrs []netip.Addr) error {
	if addrs == nil {
		addrs = []netip.Addr{nodeaddr.Unspecified(s.ip)}
	}
	want := map[netip.AddrPort]Check{}
	for _, c := range checks {
		for _, a := range addrs {
			want[netip.AddrPortFrom(a, c.Port)] = c
		}
	}
	var errs []error
	for at, p := range s.open {
		if _, ok := want[at]; !ok {
			errs = append(errs, p.close())
			delete(s.open, at)
		}
	}
	for at, c := range want {
		if p := s.open[at]; p != nil {
			p.check.Store(&c)
			continue
		}
		p, err := s.listen(ctx, at, c)
		if err != nil {
			s.taken(c, err)
			continue
		}
		s.open[at] = p
	}
	return errors.Join(errs...)
}

// Close closes all ports.
func (s *Server) Close() error { return s.Sync(context.Background(), nil, nil) }

// port is an open health check port.
type port struct {
	check   atomic.Pointer[Check]
	healthy func() bool
	server  *http.Server
	served  sync.WaitGroup
}

func (s *Server) listen(ctx context.Context, at netip.AddrPort, c Check) (*port, error) {
	l, err := s.ns.Listen(ctx, nodeaddr.Network("tcp", s.ip), at.String())
	if err != nil {
		return nil, err
	}
	p := &port{healthy: s.healthy}
	p.check.Store(&c)
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: machine.Limit(10 * time.Second)}
	// Serve always fails in the end: the server was closed, or the namespace went away.
	p.served.Go(func() { _ = p.server.Serve(l) })
	return p, nil
}

func (p *port) close() error {
	err := p.server.Close()
	p.served.Wait()
	return err
}

// ServeHTTP answers as kube-proxy does: on every path, 200 if the node has endpoints and the proxier is healthy, and
// 503 if not.
func (p *port) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	c, healthy := p.check.Load(), p.healthy()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(c.LocalEndpoints))
	if c.LocalEndpoints == 0 || !healthy {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	// A client that hung up does not want the rest.
	_, _ = fmt.Fprintf(w, `{"service":{"namespace":%q,"name":%q},"localEndpoints":%d,"serviceProxyHealthy":%t}`+"\n",
		c.Namespace, c.Name, c.LocalEndpoints, healthy)
}
