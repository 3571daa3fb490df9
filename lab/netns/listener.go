// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"net"

	"golang.org/x/sys/unix"
)

// listener accepts no connection once Close has returned. While this process starts a program, the child holds a copy
// of every descriptor until it executes the program. Closing the own descriptor would leave the socket open in the
// child, and the kernel would accept connections and reset them later.
type listener struct{ *net.TCPListener }

func (l listener) Close() error {
	if raw, err := l.SyscallConn(); err == nil {
		_ = raw.Control(hangUp) // fails only on a closed socket, which Close reports
	}
	return l.TCPListener.Close()
}

// hangUp shuts a listening socket down, even if other processes hold it.
func hangUp(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) }
