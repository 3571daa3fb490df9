// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"io"
	"sync"
	"syscall"
)

// Drainer is a server that others may still send to when it is told to end: Kubernetes removes the endpoint of a pod
// and sends SIGTERM to its containers at the same time
// (https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination-flow).
type Drainer interface {
	// Drain serves on until the server may end, or ctx ends.
	Drain(ctx context.Context)
}

// server is a server inside viplab as a runner. A Drainer drains after SIGTERM. Any other signal ends a server at once.
type server struct {
	closer io.Closer // or nil
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}

	drainOnce, closeOnce sync.Once
	err                  error
}

func newServer(ctx context.Context, closer io.Closer) *server {
	s := &server{closer: closer, done: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(ctx)
	return s
}

func (s *server) Done() <-chan struct{} { return s.done }
func (s *server) ExitCode() int         { return 0 }

func (s *server) Signal(signal syscall.Signal) error {
	d, ok := s.closer.(Drainer)
	if !ok || signal != syscall.SIGTERM {
		return s.Close()
	}
	s.drainOnce.Do(func() {
		go func() {
			d.Drain(s.ctx)
			_ = s.Close() // the caller of Close gets the error
		}()
	})
	return nil
}

func (s *server) Close() error {
	s.closeOnce.Do(func() {
		s.cancel()
		if s.closer != nil {
			s.err = s.closer.Close()
		}
		close(s.done)
	})
	return s.err
}
