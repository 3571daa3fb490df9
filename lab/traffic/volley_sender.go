// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// sender is one machine's part of a volley. It connects from one socket per shot, and sends all datagrams from one.
type sender struct {
	ns        *netns.NS
	port      uint16
	shots     []numbered
	datagrams map[int]int // sockets by address family, as in AF_INET
}

type numbered struct {
	Shot
	number int   // among all shots of the volley
	fd     int   // of a connection
	failed error // the network's error, at once or later
	by     int   // the target that answered a datagram; negative: none
}

// sendersOf groups shots by sender, in the order of each sender's first shot.
func sendersOf(shots []Shot, port uint16) []*sender {
	by := map[*netns.NS]*sender{}
	var out []*sender
	for i, s := range shots {
		if by[s.From] == nil {
			by[s.From] = &sender{ns: s.From, port: port, datagrams: map[int]int{}}
			out = append(out, by[s.From])
		}
		by[s.From].shots = append(by[s.From].shots, numbered{Shot: s, number: i, fd: -1, by: -1})
	}
	return out
}

// send fires the shots from the namespace of the thread.
func (s *sender) send() error {
	for i := range s.shots {
		shot := &s.shots[i]
		at := netip.AddrPortFrom(anyAddr(shot.To.Addr()), s.port)
		var err error
		if shot.Proto == "tcp" {
			if shot.fd, err = bound("tcp", at); err == nil {
				shot.failed = connect(shot.fd, shot.To)
			}
		} else {
			var fd int
			if fd, err = s.datagram(at); err == nil {
				shot.failed = sendDatagram(fd, shot.To)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func connect(fd int, to netip.AddrPort) error {
	err := unix.Connect(fd, netns.Sockaddr(to))
	if err == unix.EINPROGRESS {
		return nil
	}
	return err
}

// datagram returns the socket for datagrams of an address family.
func (s *sender) datagram(at netip.AddrPort) (int, error) {
	domain := netns.Domain(at.Addr())
	if fd, open := s.datagrams[domain]; open {
		return fd, nil
	}
	fd, err := bound("udp", at)
	if err != nil {
		return -1, err
	}
	s.datagrams[domain] = fd
	return fd, setOptions(fd, icmpErrors(domain))
}

// sendDatagram sends a request. The kernel reports errors of earlier datagrams once, so only a repeated one counts.
func sendDatagram(fd int, to netip.AddrPort) (err error) {
	for range 3 {
		if err = unix.Sendto(fd, []byte("?"), 0, netns.Sockaddr(to)); err == nil {
			return nil
		}
	}
	return err
}

// look determines the outcome of each shot.
func (s *sender) look(hits []Hit) error {
	for _, fd := range s.datagrams {
		if err := s.hear(fd); err != nil {
			return err
		}
	}
	for i := range s.shots {
		shot := &s.shots[i]
		if shot.Proto == "tcp" && shot.failed == nil {
			shot.by, shot.failed = connectedTo(shot.fd)
		}
		hit := &hits[shot.number]
		hit.Port = s.port
		switch {
		case shot.by >= 0:
			hit.Outcome, hit.Target = Reply, shot.by
		case shot.failed == nil:
			hit.Outcome = Silence
		default:
			var err error
			if hit.Outcome, err = outcomeOf(shot.failed); err != nil {
				return fmt.Errorf("%s to %s: %w", shot.Proto, shot.To, err)
			}
		}
	}
	return nil
}

// hear reads answers and errors for datagrams.
func (s *sender) hear(fd int) error {
	shots := map[netip.AddrPort]*numbered{}
	for i := range s.shots {
		if s.shots[i].Proto != "tcp" {
			shots[s.shots[i].To] = &s.shots[i]
		}
	}
	var answer [8]byte
	for {
		n, from, err := unix.Recvfrom(fd, answer[:], 0)
		if err == unix.EAGAIN {
			break
		}
		if err != nil {
			continue // an error of an earlier datagram, which is in the error queue as well
		}
		if shot := shots[netns.AddrPort(from)]; shot != nil && n == 1 {
			shot.by = int(answer[0])
		}
	}
	control := make([]byte, 256)
	for {
		_, n, _, to, err := unix.Recvmsg(fd, answer[:], control, unix.MSG_ERRQUEUE)
		if err == unix.EAGAIN {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the queue of errors: %w", err)
		}
		errno, err := extendedError(control[:n])
		if err != nil {
			return err
		}
		if shot := shots[netns.AddrPort(to)]; shot != nil && errno != 0 {
			shot.failed = errno
		}
	}
}

// extendedError returns the error of a message from the error queue (struct sock_extended_err in linux/errqueue.h).
func extendedError(control []byte) (unix.Errno, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0, fmt.Errorf("the queue of errors: %w", err)
	}
	for _, m := range messages {
		if (m.Header.Type == unix.IP_RECVERR || m.Header.Type == unix.IPV6_RECVERR) && len(m.Data) >= 4 {
			return unix.Errno(binary.NativeEndian.Uint32(m.Data)), nil
		}
	}
	return 0, errors.New("the queue of errors: a message without an error")
}

// outcomeOf returns what a socket error says about the network. Any other error it returns unchanged.
func outcomeOf(err error) (Outcome, error) {
	switch err {
	case unix.ECONNREFUSED:
		return Refused, nil
	case unix.ECONNRESET:
		return Reset, nil
	case unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EACCES, unix.EPROTO, unix.ENOPROTOOPT:
		return Unreachable, nil
	}
	return 0, err
}

func (s *sender) close() {
	for _, fd := range s.datagrams {
		_ = unix.Close(fd)
	}
	for _, shot := range s.shots {
		if shot.fd >= 0 {
			forget(shot.fd)
		}
	}
}
