// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"syscall"
	"testing"
)

// busy is a server that others still send to.
type busy struct {
	drains, quiet chan struct{}
	closed        bool
}

func (b *busy) Drain(ctx context.Context) {
	close(b.drains)
	select {
	case <-b.quiet:
	case <-ctx.Done():
	}
}

func (b *busy) Close() error {
	b.closed = true
	return nil
}

func TestAServerDrains(t *testing.T) {
	for name, end := range map[string]func(*busy, *server){
		"to its end":      func(b *busy, _ *server) { close(b.quiet) },
		"until SIGKILL":   func(_ *busy, s *server) { _ = s.Signal(syscall.SIGKILL) },
		"until it closes": func(_ *busy, s *server) { _ = s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			b := &busy{drains: make(chan struct{}), quiet: make(chan struct{})}
			s := newServer(t.Context(), b)
			for range 2 {
				if err := s.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
			}
			<-b.drains
			select {
			case <-s.Done():
				t.Error("it ends while it drains")
			default:
			}
			end(b, s)
			<-s.Done()
			if !b.closed {
				t.Error("it is not closed")
			}
		})
	}
}
