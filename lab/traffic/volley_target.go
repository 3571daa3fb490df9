// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// target answers with its number: to a datagram in a datagram, to a connection with the first packet back.
type target struct {
	number    [1]byte
	listeners []int
	datagrams []int
}

// A connection is over when it stands, in three packets: the target says its number in the maximum segment size of its
// SYN-ACK, the smallest of which is far beyond what any network allows. The client sees it less what options take of
// each segment, which are 12 bytes of time stamps or none: the steps are wider than that.
const firstSegment, segmentStep, maxTargets = 600, 16, 40

// listenAsTarget opens the sockets of a target in the namespace of the thread.
func listenAsTarget(number int, t Target) (*target, error) {
	out := &target{number: [1]byte{byte(number)}}
	if number >= maxTargets {
		return out, fmt.Errorf("a volley has %d targets at most", maxTargets)
	}
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
			err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG, firstSegment+segmentStep*number)
			if err := errors.Join(err, unix.Listen(fd, unix.SOMAXCONN)); err != nil {
				return out, fmt.Errorf("%s on %s: listen: %w", p, a, err)
			}
		}
	}
	return out, nil
}

// connectedTo is the number of the target that a connection leads to, one beyond all numbers if it is no target,
// negative if it does not stand.
func connectedTo(fd int) (number int, failed error) {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return -1, fmt.Errorf("TCP_INFO: %w", err)
	}
	if info.State != unix.BPF_TCP_ESTABLISHED {
		code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = unix.Errno(code)
		}
		return -1, err
	}
	if number = (int(info.Snd_mss) - firstSegment + segmentStep - 1) / segmentStep; number < 0 || number > maxTargets {
		number = maxTargets
	}
	return number, nil
}

// bound opens a socket in the namespace of the thread. Several connections of one volley leave from one port.
func bound(proto string, at netip.AddrPort) (int, error) {
	typ, err := sockType(proto)
	if err != nil {
		return -1, err
	}
	fd, err := unix.Socket(netns.Domain(at.Addr()), typ|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	if proto == "tcp" {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if err == nil {
		err = unix.Bind(fd, netns.Sockaddr(at))
	}
	if err != nil {
		return -1, errors.Join(fmt.Errorf("bind %s: %w", at, err), unix.Close(fd))
	}
	return fd, nil
}

// answer answers the datagrams that have come, and tells whether there were any. Connections the kernel answers by
// itself.
func (t *target) answer() bool {
	some := false
	var request [16]byte
	for _, fd := range t.datagrams {
		for {
			_, from, err := unix.Recvfrom(fd, request[:], 0)
			if err != nil {
				break
			}
			some = true
			_ = unix.Sendto(fd, t.number[:], 0, from) // an answer that cannot be sent is missed by who waits for it
		}
	}
	return some
}

// hangUp ends the connections of a volley.
func (t *target) hangUp() {
	for _, l := range t.listeners {
		for {
			fd, _, err := unix.Accept4(l, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
			if err != nil {
				break
			}
			forget(fd)
		}
	}
}

// forget closes the socket of a connection without a packet: neither FIN nor RST, nor TIME_WAIT to keep the port. A
// socket under repair is what one that is to be moved to another machine leaves behind.
func forget(fd int) {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR, unix.TCP_REPAIR_ON) // else there is a RST too many
	_ = unix.Close(fd)
}

func (t *target) close() error {
	t.hangUp()
	var errs []error
	for _, fd := range append(t.listeners, t.datagrams...) {
		errs = append(errs, unix.Close(fd))
	}
	return errors.Join(errs...)
}
