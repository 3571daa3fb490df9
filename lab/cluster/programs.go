// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/lab/cluster/dns"
	"github.com/viplab/viplab/lab/cluster/kubelet"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/lab/traffic"
)

// newKubelet returns the kubelet of pods that run what their images say.
func (c *Cluster) newKubelet(images kubelet.Images) (*kubelet.Kubelet, error) {
	folder, err := sandbox.TempDir("pods-")
	if err != nil {
		return nil, err
	}
	return kubelet.New(kubelet.Config{
		Store: c.store, Images: images, Folder: folder, ResolvConf: c.resolvConf, Serve: c.serveContainer,
	}), nil
}

// place returns where a pod runs.
func (c *Cluster) place(ns *netns.NS, p *corev1.Pod, addrs []netip.Addr) kubelet.Place {
	node := c.lab.Node(p.Spec.NodeName)
	return kubelet.Place{NS: ns, Node: node.NS, Addrs: addrs, HostAddrs: c.primaryAddrs(node)}
}

// serveContainer starts a server inside viplab for a container.
func (c *Cluster) serveContainer(ctx context.Context, p *kubelet.Pod, container *corev1.Container, s kubelet.Server) (
	io.Closer, error) {
	switch s {
	case kubelet.Pause:
		return nil, nil
	case kubelet.DNSServer:
		return dns.Serve(ctx, p.NS, p.Key().Name, p.Addrs, c.store)
	case kubelet.EchoServer:
		server, all, err := serveEcho(p.NS, p.Key().String(), p.Addrs, *container)
		running := &servers{cluster: c, key: p.Key(), echo: server, all: all}
		if err != nil {
			return nil, errors.Join(err, running.Close())
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if server != nil {
			c.servers[p.Key()] = server
		}
		return running, nil
	}
	return nil, fmt.Errorf("there is no server %q", s)
}

// servers are those of a container.
type servers struct {
	cluster *Cluster
	key     store.Key
	echo    *traffic.Server // or nil
	all     []io.Closer
}

// Close implements io.Closer.
func (s *servers) Close() error {
	s.cluster.mu.Lock()
	if s.echo != nil && s.cluster.servers[s.key] == s.echo {
		delete(s.cluster.servers, s.key)
	}
	s.cluster.mu.Unlock()
	var errs []error
	for _, c := range s.all {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// An echo server of a container serves after SIGTERM until it has been quiet for a while, so that proxiers have time to
// drop the endpoint, but at most for many such whiles. kube-proxy waits at most one second between syncs by default
// (minSyncPeriod). Slow machines take longer.
const (
	quiet = time.Second
	many  = 10
)

// Drain implements kubelet.Drainer. It returns when nobody has connected for a while.
func (s *servers) Drain(ctx context.Context) {
	switch {
	case len(s.all) == 0: // it serves nothing
	case s.echo == nil:
		awaitQuiet(ctx, machine.Limit(quiet), func() (never time.Time) { return never })
	default:
		awaitQuiet(ctx, machine.Limit(quiet), s.echo.LastArrival)
	}
}

// awaitQuiet waits until nothing has arrived for a while, or ctx ends.
func awaitQuiet(ctx context.Context, while time.Duration, lastArrival func() time.Time) {
	ctx, cancel := context.WithTimeout(ctx, many*while)
	defer cancel()
	for last := time.Now(); ; last = lastArrival() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(last.Add(while))):
		}
		if !lastArrival().After(last) {
			return
		}
	}
}

// closer is a function as an io.Closer.
type closer func() error

// Close implements io.Closer.
func (c closer) Close() error { return c() }
