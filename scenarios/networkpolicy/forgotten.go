// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/observe"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// forgottenFlow lets b2 and a1 talk, denies that, makes the nodes forget, and looks who of them still reaches the
// other.
func forgottenFlow(ctx context.Context, w spec.World, f lab.Family, b2, a1 *Socket) error {
	says := func(from, to *Socket, want bool) error {
		const text = "hello"
		if err := from.Send(to.Addr(), text); err != nil {
			return err
		}
		if err := w.Expect(ctx, append(open("b1", "b2"), open("c2", "b1")...)...); err != nil { // fences, both ways
			return err
		}
		heard, err := to.Heard()
		if err == nil && (len(heard) > 0) != want {
			err = fmt.Errorf("%s: %s to %s: arrived=%t, want %t", f, from.Addr(), to.Addr(), !want, want)
		}
		return err
	}
	steps := []func() error{
		func() error { return says(b2, a1, true) }, func() error { return says(a1, b2, true) },
		func() error { return w.Apply(policy("p", pod("a1"), ingress())) },
		func() error { return w.Settle(ctx) },
		func() error { return forgetFlows(ctx, w, b2.Addr(), "n1", "n2") },
		func() error { return says(b2, a1, false) },
		func() error { return says(a1, b2, true) }, func() error { return says(b2, a1, true) },
		func() error { return Delete("NetworkPolicy", "p").Run(ctx, w) },
	}
	for _, do := range steps {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// forgetFlows makes nodes forget the flows of a socket.
func forgetFlows(ctx context.Context, w spec.World, socket netip.AddrPort, nodes ...string) error {
	for _, name := range nodes {
		flows, err := w.Flows(ctx, name, func(f observe.Flow) bool { return f.Orig.Src == socket || f.Orig.Dst == socket })
		if err != nil {
			return err
		}
		table, err := observe.NewConntrack(w.Lab().Node(name).NS)
		if err != nil {
			return &spec.HarnessError{Err: err}
		}
		for _, f := range flows {
			err = errors.Join(err, table.Delete(f))
		}
		if err := errors.Join(err, table.Close()); err != nil {
			return &spec.HarnessError{Err: err}
		}
	}
	return nil
}

// forgottenConnection is forgottenFlow for TCP. What b2 sends into the connection is the beginning of another one for
// the nodes, and denied. What a1 sends is that as well; then b2's segments are replies to it. An enforcer may end all
// that.
func forgottenConnection(ctx context.Context, w spec.World, f lab.Family) error {
	if err := w.Settle(ctx); err != nil {
		return err
	}
	b2, a1, err := connect(ctx, w, f, "b2", "a1")
	if err != nil {
		return err
	}
	defer b2.Close()
	defer a1.Close()
	socket := b2.LocalAddr().(*net.TCPAddr).AddrPort()
	for _, do := range []func() error{
		func() error { return says(b2) }, func() error {
			return Soon(ctx,
				func(context.Context) error { return hears(a1, true) })
		},
		func() error { return w.Apply(policy("p", pod("a1"), ingress())) },
		func() error { return w.Settle(ctx) },
		func() error { return forgetFlows(ctx, w, socket, "n1", "n2") },
		func() error { return says(b2) },
		// a fence, and what the policy says
		func() error { return w.Expect(ctx, append(open("b1", "b2"), shut("a1", "b2")...)...) },
		func() error { return hears(a1, false) },
		func() error { return says(a1) },
		func() error { return w.Expect(ctx, open("c2", "b1")...) },
	} {
		if err := do(); err != nil {
			return fmt.Errorf("%s, connection of %s: %w", f, socket, err)
		}
	}
	goesOn := "is cut"
	if hears(b2, true) == nil {
		goesOn = "goes on"
		// What b2 has sent in vain it sends again, and now it is a reply.
		if err := Soon(ctx, func(context.Context) error { return hears(a1, true) }); err != nil {
			return fmt.Errorf("%s, connection of %s, after a1 has sent: %w", f, socket, err)
		}
	}
	w.Note(fmt.Sprintf("a connection over IP%s that the nodes have forgotten %s when the isolated side sends", f,
		goesOn))
	return Delete("NetworkPolicy", "p").Run(ctx, w)
}

// connect opens a TCP connection from one host to another, and returns its ends.
func connect(ctx context.Context, w spec.World, f lab.Family, from, to string) (client, server net.Conn, err error) {
	ends := map[string]*lab.Host{}
	for _, name := range []string{from, to} {
		if ends[name], err = w.Host(name); err != nil {
			return nil, nil, err
		}
	}
	listener, err := ends[to].NS.Listen(ctx, "tcp", netip.AddrPortFrom(ends[to].Addr(f), 0).String())
	if err != nil {
		return nil, nil, &spec.HarnessError{Err: err}
	}
	defer listener.Close()
	client, err = ends[from].NS.Dial(ctx, "tcp", netip.AddrPort{}, listener.Addr().(*net.TCPAddr).AddrPort())
	if err != nil {
		return nil, nil, fmt.Errorf("connect %s to %s: %w", from, to, err)
	}
	server, err = listener.Accept() // it is there already
	if err != nil {
		return nil, nil, errors.Join(&spec.HarnessError{Err: err}, client.Close())
	}
	return client, server, nil
}

// says sends a word.
func says(c net.Conn) error {
	_, err := c.Write([]byte("word"))
	return err
}

// hears says whether it is as wanted that something has come out of a connection's other end. That is taken.
func hears(c net.Conn, want bool) error {
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return &spec.HarnessError{Err: err}
	}
	n := 0
	var readErr error
	err = raw.Read(func(fd uintptr) bool {
		n, _, readErr = unix.Recvfrom(int(fd), make([]byte, 64), unix.MSG_DONTWAIT)
		return true
	})
	if err != nil || readErr != nil && !errors.Is(readErr, unix.EAGAIN) {
		return fmt.Errorf("receive: %w", errors.Join(err, readErr))
	}
	if (n > 0) != want {
		return fmt.Errorf("at %s arrived=%t, want %t", c.LocalAddr(), n > 0, want)
	}
	return nil
}
