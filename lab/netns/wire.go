// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// wire is a plain rtnetlink socket for large requests. The kernel answers inside the system call that sends one.
type wire struct {
	mu sync.Mutex
	fd int
}

// answers holds buffers for replies. No datagram of a reply by the kernel is larger.
var answers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// open opens the socket in the namespace of the thread. The kernel explains refusals, and repeats no requests.
func (w *wire) open() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	w.fd = fd
	return errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1),
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1))
}

func (w *wire) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fd < 0 {
		return nil
	}
	fd := w.fd
	w.fd = -1
	return unix.Close(fd)
}

// Exchange sends a request of one or more rtnetlink messages, of which one must ask for an acknowledgement, and passes
// every datagram of the answer to reply, until that returns last. Concurrent calls run one after another.
func (n *NS) Exchange(request []byte, reply func(datagram []byte) (last bool, err error)) error {
	n.wire.mu.Lock()
	defer n.wire.mu.Unlock()
	if _, err := retry(func() (int, error) { return unix.Write(n.wire.fd, request) }); err != nil {
		return fmt.Errorf("%s: send to netlink: %w", n.name, err)
	}
	buf := answers.Get().(*[32 << 10]byte)
	defer answers.Put(buf)
	for {
		size, err := retry(func() (int, error) { return unix.Read(n.wire.fd, buf[:]) })
		if err != nil {
			return fmt.Errorf("%s: receive from netlink: %w", n.name, err)
		}
		if last, err := reply(buf[:size]); last || err != nil {
			return err
		}
	}
}

// retry repeats a system call that a signal interrupted.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
