package traffic

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// target answers with its number.
type target struct {
	number    [1]byte
	listeners []int
	datagrams []int
	accepted  []int // until the volley is over: closing early could overtake the answer
}

// listenAsTarget opens the sockets of a target in the namespace of the thread.
func listenAsTarget(number int, t Target) (*target, error) {
	out := &target{number: [1]byte{byte(number)}}
	for _, a := range t.Addrs {
		for _, p := range t.Ports {
			fd, err := bound(p.Proto, netip.AddrPortFrom(a, p.Number))
			if err != nil {
				return out, fmt.Errorf("%s on %s: %w", p, a, err)
			}
			if p.Proto == "udp" {
				out.datagrams = append(out.datagrams, fd)
				continue
			}
			out.listeners = append(out.listeners, fd)
			if err := unix.Listen(fd, unix.SOMAXCONN); err != nil {
				return out, fmt.Errorf("%s on %s: listen: %w", p, a, err)
			}
		}
	}
	return out, nil
}

// bound opens a socket in the namespace of the thread. Several connections of one volley leave from one port.
func bound(proto string, at netip.AddrPort) (int, error) {
	typ, err := sockType(proto)
	if err != nil {
		return -1, err
	}
	fd, err := unix.Socket(domainOf(at.Addr()), typ|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	if proto == "tcp" {
		err = errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
			// RST on close: no TIME_WAIT keeps the port.
			unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
	}
	if err == nil {
		err = unix.Bind(fd, sockaddr(at))
	}
	if err != nil {
		return -1, errors.Join(fmt.Errorf("bind %s: %w", at, err), unix.Close(fd))
	}
	return fd, nil
}

func (t *target) answer() bool {
	some := false
	for _, l := range t.listeners {
		for {
			fd, _, err := unix.Accept4(l, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
			if err != nil {
				break
			}
			some = true
			t.accepted = append(t.accepted, fd)
			_, _ = unix.Write(fd, t.number[:]) // an answer that cannot be sent is missed by who waits for it
		}
	}
	var request [16]byte
	for _, fd := range t.datagrams {
		for {
			_, from, err := unix.Recvfrom(fd, request[:], 0)
			if err != nil {
				break
			}
			some = true
			_ = unix.Sendto(fd, t.number[:], 0, from)
		}
	}
	return some
}

// hangUp ends the connections of a volley.
func (t *target) hangUp() {
	for _, fd := range t.accepted {
		_ = unix.Close(fd)
	}
	t.accepted = t.accepted[:0]
}

func (t *target) close() error {
	t.hangUp()
	var errs []error
	for _, fd := range append(t.listeners, t.datagrams...) {
		errs = append(errs, unix.Close(fd))
	}
	return errors.Join(errs...)
}
