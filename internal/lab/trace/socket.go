// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// socket talks to netfilter in a namespace.
type socket struct {
	ns   string
	fd   int
	file *os.File // for the Go poller
	// undo removes what the socket holds in the kernel. Closing the socket does so, too, but not before the last process
	// that has inherited it, such as one between fork and exec, has closed it.
	undo []request
}

func openSocket(ns *netns.NS) (*socket, error) {
	fd, err := ns.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("%s: trace: %w", ns.Name(), err)
	}
	s := &socket{ns: ns.Name(), fd: fd, file: os.NewFile(uintptr(fd), "trace of "+ns.Name())}
	// Users other than root get a smaller buffer, which is enough for a few sources.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, errors.Join(s.failed("bind", err), s.close())
	}
	return s, nil
}

// close closes the socket, and removes what it holds in the kernel. A namespace that has gone holds nothing.
func (s *socket) close() error {
	var err error
	if len(s.undo) > 0 {
		err = s.ask(s.undo...)
	}
	return errors.Join(err, s.file.Close())
}

func (s *socket) failed(call string, err error) error {
	return fmt.Errorf("%s: trace: %w", s.ns, os.NewSyscallError(call, err))
}

// request is a message to netfilter. It begins with a struct nfgenmsg.
type request struct {
	kind   int // subsystem<<8 | message
	flags  netlink.HeaderFlags
	family uint8
	number uint16 // of the resource
	fill   func(*netlink.AttributeEncoder)
}

func (r request) bytes() ([]byte, error) {
	e := netlink.NewAttributeEncoder()
	e.ByteOrder = binary.BigEndian
	if r.fill != nil {
		r.fill(e)
	}
	encoded, err := e.Encode()
	if err != nil {
		return nil, err
	}
	data := binary.BigEndian.AppendUint16([]byte{r.family, unix.NFNETLINK_V0}, r.number)
	m := netlink.Message{Data: append(data, encoded...)}
	m.Header = netlink.Header{
		Length: uint32(unix.NLMSG_HDRLEN + len(m.Data)), Type: netlink.HeaderType(r.kind), Flags: r.flags | netlink.Request,
	}
	return m.MarshalBinary()
}

// ask sends requests at once, and returns the kernel's refusal of any of them. The kernel has answered before the call
// that sends them returns.
func (s *socket) ask(requests ...request) error {
	var all []byte
	for _, r := range requests {
		b, err := r.bytes()
		if err != nil {
			return fmt.Errorf("%s: trace: %w", s.ns, err)
		}
		all = append(all, b...)
	}
	if err := unix.Sendto(s.fd, all, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return s.failed("sendto", err)
	}
	var refusal error
	err := s.each(func(m syscall.NetlinkMessage) error {
		if m.Header.Type != unix.NLMSG_ERROR || len(m.Data) < 4 || refusal != nil {
			return nil
		}
		if code := int32(binary.NativeEndian.Uint32(m.Data)); code != 0 { // struct nlmsgerr
			refusal = fmt.Errorf("%s: trace: netfilter: %w", s.ns, unix.Errno(-code))
		}
		return nil
	})
	return errors.Join(refusal, err)
}

// each calls f for every message that the socket has received. It does not wait.
func (s *socket) each(f func(syscall.NetlinkMessage) error) error {
	buffer := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(s.fd, buffer, unix.MSG_DONTWAIT)
		switch err {
		case nil:
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return nil
		default: // ENOBUFS: some were lost
			return s.failed("recvfrom", err)
		}
		messages, err := syscall.ParseNetlinkMessage(slices.Clone(buffer[:n]))
		if err != nil {
			return s.failed("recvfrom", err)
		}
		for _, m := range messages {
			if err := f(m); err != nil {
				return err
			}
		}
	}
}

// listener receives what the kernel says of packets in a namespace, in the order in which it happens.
type listener struct {
	*socket
	ended chan struct{}

	mu      sync.Mutex
	records []record
	err     error
}

// record is one of the two.
type record struct {
	message *message // of a rule of nftables
	logged  *logged  // by a rule that logs
}

// sendBuffer is the size of the buffer for a transaction: some hundred bytes for each rule.
const sendBuffer = 4 << 20

// receiveBuffer is the size of the socket's buffer. Users other than root get up to net.core.rmem_max.
const receiveBuffer = 64 << 20

// Groups of NFLOG. Rules of legacy tables log to group 0. Of two traces of a namespace the second gets an error.
const legacyGroup, ownGroup = 0, 65501

// listen starts to receive.
func listen(ns *netns.NS, groups ...uint16) (*listener, error) {
	s, err := openSocket(ns)
	if err != nil {
		return nil, err
	}
	err = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer)
	if errors.Is(err, unix.EPERM) {
		err = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer)
	}
	if err != nil {
		return nil, errors.Join(s.failed("setsockopt", err), s.close())
	}
	for _, g := range groups {
		if err := s.bindLog(g); err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.undo = append(s.undo, logGroup(g, commandUnbind))
	}
	if err := unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, traceGroup); err != nil {
		return nil, errors.Join(s.failed("setsockopt", err), s.close())
	}
	l := &listener{socket: s, ended: make(chan struct{})}
	raw, err := s.file.SyscallConn()
	if err != nil {
		return nil, errors.Join(s.failed("poll", err), s.close())
	}
	go l.read(raw)
	return l, nil
}

// read records messages as they come, until close.
func (l *listener) read(raw syscall.RawConn) {
	defer close(l.ended)
	_ = raw.Read(func(uintptr) bool { // fails only on a closed file
		l.drain()
		return false
	})
}

// drain records what has come. It does not wait.
func (l *listener) drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.each(func(m syscall.NetlinkMessage) (err error) {
		const header = 4 // struct nfgenmsg
		if len(m.Data) < header {
			return nil
		}
		var r record
		switch m.Header.Type {
		case traceMessage:
			r.message, err = parse(m.Data[0], m.Data[header:])
		case logMessage:
			r.logged, err = parseLogged(m.Data[2:])
		default:
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: trace: %w", l.ns, err)
		}
		l.records = append(l.records, r)
		return nil
	})
	l.err = errors.Join(l.err, err)
}

// end stops receiving, and returns all records.
func (l *listener) end() ([]record, error) {
	l.drain()
	err := l.close()
	<-l.ended
	return l.records, errors.Join(l.err, err)
}
