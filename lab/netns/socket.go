// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Domain returns the socket domain of an address: AF_INET, or AF_INET6, also for an IPv4-mapped IPv6 address.
func Domain(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// Sockaddr returns an address and port in the form that system calls take.
func Sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

// AddrPort reverses Sockaddr. It returns the zero value for nil and for a socket address that is not an IP one.
func AddrPort(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
	}
	return netip.AddrPort{}
}

// listener accepts no connection once Close has returned. A child that is just being started holds a copy of every
// descriptor, so the kernel would go on accepting connections, and reset them later.
type listener struct{ *net.TCPListener }

func (l listener) Close() error {
	if raw, err := l.SyscallConn(); err == nil {
		_ = raw.Control(hangUp) // fails only on a closed socket, which Close reports
	}
	return l.TCPListener.Close()
}

// hangUp shuts a listening socket down, even if other processes hold it.
func hangUp(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) }
