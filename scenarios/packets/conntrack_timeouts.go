// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/observe"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// timeouts reads what is left of entries that have just been touched. The pod serves nothing: the scenario does,
// because an echo server closes a connection that its client has half closed.
func timeouts() spec.Scenario {
	return spec.Scenario{
		ID:    "ct-timeouts",
		Needs: []spec.Feature{spec.ClusterIP},
		Given: []store.Object{Pod("c1", "n1"), Pod("s2", "n2", App("web")), Service("web")},
		Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
			if err := w.Settle(ctx); err != nil {
				return err
			}
			var errs []error
			for _, family := range w.Lab().Stack().Families() {
				if err := halfClose(ctx, w, family); err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", family, err))
				}
			}
			return errors.Join(errs...)
		}}},
	}
}

// halfClose connects c1 to a server that never closes, and closes c1's half.
func halfClose(ctx context.Context, w spec.World, family lab.Family) error {
	vip, err := w.Resolve(spec.ClusterIPOf("web", 80), family, "tcp")
	if err != nil {
		return err
	}
	client, server, err := connect(ctx, w, family, vip)
	if err != nil {
		return err
	}
	defer server.Close()
	defer client.Close()
	orig := observe.Tuple{Src: client.LocalAddr().(*net.TCPAddr).AddrPort(), Dst: vip}
	if err := remembered(ctx, w, orig, "ESTABLISHED", 24*time.Hour); err != nil {
		return err
	}
	if err := client.(*net.TCPConn).CloseWrite(); err != nil {
		return &spec.HarnessError{Err: err}
	}
	return remembered(ctx, w, orig, "CLOSE_WAIT", time.Hour)
}

// connect makes a connection from c1 to the virtual address, and takes it at s2.
func connect(ctx context.Context, w spec.World, family lab.Family, vip netip.AddrPort) (client, server net.Conn,
	err error) {
	pod, err := w.Host("s2")
	if err != nil {
		return nil, nil, err
	}
	from, err := w.Host("c1")
	if err != nil {
		return nil, nil, err
	}
	listener, err := pod.NS.Listen(ctx, "tcp", netip.AddrPortFrom(pod.Addr(family), 8080).String())
	if err != nil {
		return nil, nil, &spec.HarnessError{Err: err}
	}
	defer listener.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, _ := listener.Accept() // nil if the listener is closed before
		accepted <- c
	}()
	ctx, cancel := InTime(ctx)
	defer cancel()
	if client, err = from.NS.Dial(ctx, "tcp", netip.AddrPort{}, vip); err != nil {
		return nil, nil, fmt.Errorf("c1 does not reach the Service: %w", err)
	}
	return client, <-accepted, nil
}

// remembered waits for n1's entry to be in a state, and wants it to stay for as long as a fresh one shall.
func remembered(ctx context.Context, w spec.World, orig observe.Tuple, state string, want time.Duration) error {
	var found observe.Flow
	ctx, cancel := InTime(ctx)
	defer cancel()
	if err := observe.Await(ctx, nil, func(context.Context) (err error) {
		found, _, err = w.Flow("n1", "tcp", orig)
		if err == nil && found.TCPState != state {
			err = fmt.Errorf("n1 tracks no connection %s in state %s", orig, state)
		}
		return err
	}); err != nil {
		return err
	}
	if left := found.Timeout; left > want || left < want-time.Minute {
		return fmt.Errorf("n1 remembers a connection in state %s for %s, not for %s", state, left, want)
	}
	return nil
}
