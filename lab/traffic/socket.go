// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"errors"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// openSocket opens a socket of a protocol, "tcp" or "udp", in the namespace of the thread.
func openSocket(proto string, domain int) (int, error) {
	typ, err := sockType(proto)
	if err != nil {
		return -1, err
	}
	fd, err := unix.Socket(domain, typ|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	return fd, nil
}

func sockType(proto string) (int, error) {
	switch proto {
	case "tcp":
		return unix.SOCK_STREAM, nil
	case "udp":
		return unix.SOCK_DGRAM, nil
	}
	return 0, fmt.Errorf("protocol %q: want tcp or udp", proto)
}

// option is a socket option whose value is a number.
type option struct {
	level, number, value int
	name                 string
}

var (
	v6Only    = option{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1, "IPV6_V6ONLY"}
	reuseAddr = option{unix.SOL_SOCKET, unix.SO_REUSEADDR, 1, "SO_REUSEADDR"}
	noDelay   = option{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1, "TCP_NODELAY"}
	// delayedAck lets acknowledgements wait for data to go with (RFC 1122 4.2.3.2), also those of a handshake. Without
	// it Linux sends the first ones of a connection at once (tcp(7)).
	delayedAck = option{unix.IPPROTO_TCP, unix.TCP_QUICKACK, 0, "TCP_QUICKACK"}
)

// icmpErrors makes a UDP socket report every ICMP error. Otherwise it reports port unreachable only.
func icmpErrors(domain int) option {
	if domain == unix.AF_INET6 {
		return option{unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1, "IPV6_RECVERR"}
	}
	return option{unix.IPPROTO_IP, unix.IP_RECVERR, 1, "IP_RECVERR"}
}

func setOptions(fd int, options ...option) error {
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o.level, o.number, o.value); err != nil {
			return fmt.Errorf("set %s: %w", o.name, err)
		}
	}
	return nil
}

// resetOnClose makes a TCP socket end with RST, so that no TIME_WAIT stays behind. With on false it ends with FIN.
func resetOnClose(fd int, on bool) error {
	linger := &unix.Linger{}
	if on {
		linger.Onoff = 1
	}
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, linger); err != nil {
		return fmt.Errorf("set SO_LINGER: %w", err)
	}
	return nil
}

// disconnect ends a TCP connection with RST, so that the next one may have its port. Closing the socket ends it later
// while a program that this process is starting still shares its file descriptors (between fork and exec).
func disconnect(fd int) error {
	unspecified := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&unspecified)),
		unsafe.Sizeof(unspecified))
	if errno != 0 {
		return fmt.Errorf("disconnect: %w", errno)
	}
	return nil
}

// sendOnce sends one packet from a socket of its own.
func sendOnce(ns *netns.NS, domain, typ, proto int, packet []byte, to unix.Sockaddr) error {
	fd, err := ns.Socket(domain, typ, proto)
	if err != nil {
		return err
	}
	return errors.Join(unix.Sendto(fd, packet, 0, to), unix.Close(fd))
}

func localAddr(fd int) (netip.AddrPort, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("getsockname: %w", err)
	}
	return netns.AddrPort(sa), nil
}

// anyAddr returns the wildcard address of the family of a.
func anyAddr(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}
