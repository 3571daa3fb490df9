// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/proxiers/conntrack"
	"github.com/viplab/viplab/internal/proxiers/nodeaddr"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
)

// sockets opens sockets of one family in a node.
type sockets struct {
	ns    *netns.NS
	ip    lab.Family
	ports *ports
	flows *conntrack.Flows
}

func newSockets(ns *netns.NS, ip lab.Family) sockets {
	return sockets{ns, ip, &ports{}, conntrack.FlowsOf(ns)}
}

// network returns the name of a transport over the family in package net: "tcp4".
func (s sockets) network(transport string) string { return nodeaddr.Network(transport, s.ip) }

// dialTCP connects to an endpoint. It enters the node only to make the socket, so that no thread waits there for the
// endpoint's answer.
func (s sockets) dialTCP(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
	fd, err := s.ns.Socket(netns.Domain(to.Addr()), unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "connection to "+to.String())
	defer file.Close()
	if err := connect(ctx, file, netns.Sockaddr(to)); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", to, err)
	}
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// connect connects a non-blocking socket, until it is connected or the context ends.
func connect(ctx context.Context, file *os.File, to unix.Sockaddr) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = file.SetWriteDeadline(time.Unix(1, 0)) }) // wakes the wait below
	defer stop()
	begun := false
	var failure error
	err = raw.Write(func(fd uintptr) (done bool) {
		if begun {
			failure = unfinished(int(fd))
		} else {
			failure, begun = unix.Connect(int(fd), to), true
		}
		return !errors.Is(failure, unix.EINPROGRESS)
	})
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(err, failure)
}

// unfinished returns nil if the socket is connected, EINPROGRESS if it is still connecting, and otherwise why the
// connection failed.
func unfinished(fd int) error {
	switch code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); {
	case err != nil:
		return err
	case code != 0:
		return syscall.Errno(code)
	}
	if _, err := unix.Getpeername(fd); errors.Is(err, unix.ENOTCONN) {
		return unix.EINPROGRESS // a spurious wake-up
	}
	return nil
}

// datagrams are buffers for one datagram each.
var datagrams = sync.Pool{New: func() any { return new([1 << 16]byte) }}

// receive waits for a datagram and passes it to use, with its sender. It holds no buffer while it waits, so that idle
// sockets cost little.
func receive(c syscall.RawConn, use func(datagram []byte, from netip.AddrPort)) error {
	var buf *[1 << 16]byte
	var n int
	var from unix.Sockaddr
	var failure error
	err := c.Read(func(fd uintptr) (done bool) {
		buf = datagrams.Get().(*[1 << 16]byte)
		n, from, failure = unix.Recvfrom(int(fd), buf[:], 0)
		if failure != nil {
			datagrams.Put(buf)
		}
		return !errors.Is(failure, unix.EAGAIN)
	})
	if err := errors.Join(err, failure); err != nil {
		return err
	}
	defer datagrams.Put(buf)
	use(buf[:n], netns.AddrPort(from))
	return nil
}
