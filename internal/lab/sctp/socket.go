// SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// socket is a raw socket in the Go poller that sends and receives SCTP packets of one IP family.
type socket struct {
	file   *os.File
	raw    syscall.RawConn
	domain int
}

// open binds to an address, an unspecified one included.
func open(ns *netns.NS, at netip.Addr) (*socket, error) {
	fd, err := ns.Socket(netns.Domain(at), unix.SOCK_RAW|unix.SOCK_NONBLOCK, unix.IPPROTO_SCTP)
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, netns.Sockaddr(netip.AddrPortFrom(at, 0))); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: bind to %s: %w", ns.Name(), at, err), unix.Close(fd))
	}
	s := &socket{file: os.NewFile(uintptr(fd), "sctp"), domain: netns.Domain(at)}
	s.raw, err = s.file.SyscallConn()
	return s, err
}

func (s *socket) close() error { return s.file.Close() }

// send sends a message; the kernel makes the IP header.
func (s *socket) send(m message, to netip.Addr) error {
	b, err := m.bytes()
	if err != nil {
		return err
	}
	var failed error
	err = s.raw.Write(func(fd uintptr) bool {
		failed = unix.Sendto(int(fd), b, 0, netns.Sockaddr(netip.AddrPortFrom(to, 0)))
		return failed != unix.EAGAIN
	})
	if err := errors.Join(err, failed); err != nil {
		return fmt.Errorf("send %s to %s: %w", m.kind, to, err)
	}
	return nil
}

// receive waits for the next message. Packets that are none are passed over.
func (s *socket) receive() (m message, from netip.Addr, err error) {
	buffer := make([]byte, 64<<10)
	for {
		var n int
		var at unix.Sockaddr
		var failed error
		err := s.raw.Read(func(fd uintptr) bool {
			n, at, failed = unix.Recvfrom(int(fd), buffer, 0)
			return failed != unix.EAGAIN
		})
		if err != nil {
			return message{}, netip.Addr{}, err // closed, or out of time
		}
		if failed != nil {
			continue // an ICMP error for an earlier packet
		}
		if m, err := parse(payload(buffer[:n], s.domain)); err == nil {
			return m, netns.AddrPort(at).Addr(), nil
		}
	}
}

// until makes receive give up when the context ends.
func (s *socket) until(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = s.file.SetDeadline(time.Unix(1, 0)) }) // fails on a closed socket only
}
