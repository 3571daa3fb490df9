// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"net"

	"golang.org/x/sys/unix"
)

// listener is one that nobody can connect to any more once Close returns. A program that is being started elsewhere in
// this process holds a copy of every descriptor until it has become itself, so to close one's own is not enough: the
// kernel would go on taking connections, and reset them later.
type listener struct{ *net.TCPListener }

func (l listener) Close() error {
	if raw, err := l.SyscallConn(); err == nil {
		_ = raw.Control(hangUp) // fails if it is closed already, which Close tells
	}
	return l.TCPListener.Close()
}

// hangUp takes a listening socket out of service, whoever else holds it.
func hangUp(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) }
