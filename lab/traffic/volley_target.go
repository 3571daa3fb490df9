// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// target answers with its number: to a datagram with a datagram, to a connection with the first packet back.
type target struct {
	number    [1]byte
	listeners []int
	datagrams []int
}

// A connection is over once it is established. So the target puts its number into the maximum segment size of its
// SYN-ACK, below those of the networks in use. The client sees it less up to 12 bytes of TCP options, so the steps are
// wider.
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

// connectedTo returns the number of the target that a connection leads to. It returns one beyond all numbers if the
// peer is no target, and a negative number if the connection is not established.
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
	fd, err := openSocket(proto, netns.Domain(at.Addr()))
	if err != nil {
		return -1, err
	}
	if proto == "tcp" {
		err = setOptions(fd, reuseAddr)
	}
	if err == nil {
		err = unix.Bind(fd, netns.Sockaddr(at))
	}
	if err != nil {
		return -1, errors.Join(fmt.Errorf("bind %s: %w", at, err), unix.Close(fd))
	}
	return fd, nil
}

// answer answers the datagrams that have come, and reports whether there were any.
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
			_ = unix.Sendto(fd, t.number[:], 0, from) // the sender notices a missing answer
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

// forget closes a connection without a packet or TIME_WAIT, by the repair mode for moving sockets.
func forget(fd int) {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR, unix.TCP_REPAIR_ON) // or closing sends a RST
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
