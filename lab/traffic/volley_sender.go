package traffic

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// sender is one machine's part of a volley.
type sender struct {
	ns    *netns.NS
	port  uint16
	shots []numbered
	fds   []int // a socket for each shot
}

type numbered struct {
	Shot
	number int // among all shots of the volley
	early  error
}

// sendersOf sorts shots by who sends them, in the order in which they first come.
func sendersOf(shots []Shot, port uint16) []*sender {
	by := map[*netns.NS]*sender{}
	var out []*sender
	for i, s := range shots {
		if by[s.From] == nil {
			by[s.From] = &sender{ns: s.From, port: port}
			out = append(out, by[s.From])
		}
		by[s.From].shots = append(by[s.From].shots, numbered{Shot: s, number: i})
	}
	return out
}

// send fires the shots from the namespace of the thread.
func (s *sender) send() error {
	for i := range s.shots {
		shot := &s.shots[i]
		fd, err := s.open(shot.Shot)
		if err != nil {
			return err
		}
		s.fds = append(s.fds, fd)
		err = unix.Connect(fd, sockaddr(shot.To))
		if err == nil && shot.Proto == "udp" {
			_, err = unix.Write(fd, []byte("?"))
		}
		if err != nil && err != unix.EINPROGRESS {
			shot.early = err
		}
	}
	return nil
}

// open makes the socket of a shot. Datagrams share the port as connections do: they are told apart by where they go.
func (s *sender) open(shot Shot) (int, error) {
	at := netip.AddrPortFrom(anyAddr(shot.To.Addr()), s.port)
	if shot.Proto == "tcp" {
		return bound("tcp", at)
	}
	domain := domainOf(shot.To.Addr())
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	level, option := unix.IPPROTO_IP, unix.IP_RECVERR
	if domain == unix.AF_INET6 {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVERR
	}
	err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.SetsockoptInt(fd, level, option, 1))
	if err == nil {
		err = unix.Bind(fd, sockaddr(at))
	}
	if err != nil {
		return -1, errors.Join(fmt.Errorf("bind %s: %w", at, err), unix.Close(fd))
	}
	return fd, nil
}

// look finds out what came of each shot.
func (s *sender) look(hits []Hit) error {
	for i, shot := range s.shots {
		hit := &hits[shot.number]
		var err error
		if hit.Source, err = localAddr(s.fds[i]); err != nil {
			return err
		}
		err = shot.early
		if err == nil {
			var answer [8]byte
			var n int
			n, err = unix.Read(s.fds[i], answer[:])
			if err == nil && n == 1 {
				hit.Outcome, hit.By = Reply, int(answer[0])
				continue
			}
			if err == nil {
				err = unix.ECONNRESET // the end of a stream that has said nothing
			}
		}
		if hit.Outcome, err = outcomeOf(err); err != nil {
			return fmt.Errorf("%s to %s: %w", shot.Proto, shot.To, err)
		}
	}
	return nil
}

// outcomeOf is what the error of a socket says of the network; what it says of anything else stays an error.
func outcomeOf(err error) (Outcome, error) {
	switch err {
	case unix.EAGAIN, unix.ENOTCONN:
		return Silence, nil
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
	for _, fd := range s.fds {
		_ = unix.Close(fd)
	}
}
