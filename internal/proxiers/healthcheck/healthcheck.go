// SPDX-License-Identifier: Apache-2.0

// Package healthcheck serves the health check ports of Services: HTTP ports by which load balancers learn which nodes
// have endpoints of a Service with externalTrafficPolicy Local.
package healthcheck

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
)

// Check is what a health check port has to tell.
type Check struct {
	Namespace, Name string
	Port            uint16
	// LocalEndpoints is the number of ready endpoints on the node; 0 means unhealthy.
	LocalEndpoints int
}

// Server serves the health check ports of a node and family. Its methods are not called concurrently.
type Server struct {
	taken   func(Check, error)
	ns      *netns.NS
	network string
	any     netip.Addr
	open    map[netip.AddrPort]*port
}

// New makes a server without ports. taken is told of each port that cannot be opened, because another program has it:
// with every Sync, until it is free.
func New(ns *netns.NS, f lab.Family, taken func(Check, error)) *Server {
	s := &Server{taken: taken, ns: ns, network: "tcp4", any: netip.IPv4Unspecified(), open: map[netip.AddrPort]*port{}}
	if f == lab.V6 {
		s.network, s.any = "tcp6", netip.IPv6Unspecified()
	}
	return s
}

// Sync opens the ports that are missing, closes those that nobody wants any more, and gives all of them what to tell.
// They are opened on the given addresses, nil meaning all. One that is taken does not keep the others from opening.
func (s *Server) Sync(ctx context.Context, checks []Check, addrs []netip.Addr) error {
	if addrs == nil {
		addrs = []netip.Addr{s.any}
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
	check  atomic.Pointer[Check]
	server *http.Server
	served sync.WaitGroup
}

func (s *Server) listen(ctx context.Context, at netip.AddrPort, c Check) (*port, error) {
	l, err := s.ns.Listen(ctx, s.network, at.String())
	if err != nil {
		return nil, err
	}
	p := &port{}
	p.check.Store(&c)
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: 10 * time.Second}
	p.served.Go(func() { p.serve(l) })
	return p, nil
}

func (p *port) serve(l net.Listener) {
	// Serve always ends with an error: that the server was closed, or that the namespace went away under it.
	_ = p.server.Serve(l)
}

func (p *port) close() error {
	err := p.server.Close()
	p.served.Wait()
	return err
}

// answer is the body that kube-proxy sends.
type answer struct {
	Service             name `json:"service"`
	LocalEndpoints      int  `json:"localEndpoints"`
	ServiceProxyHealthy bool `json:"serviceProxyHealthy"`
}

type name struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// ServeHTTP answers 200 if the node has endpoints and 503 if not, on every path.
func (p *port) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	c := p.check.Load()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(c.LocalEndpoints))
	if c.LocalEndpoints == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	// A client that hung up does not want the rest.
	_ = json.NewEncoder(w).Encode(answer{
		Service:             name{c.Namespace, c.Name},
		LocalEndpoints:      c.LocalEndpoints,
		ServiceProxyHealthy: true,
	})
}
