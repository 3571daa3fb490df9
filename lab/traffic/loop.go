// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// loop serves the sockets of all servers of the process. One epoll set holds them all, whatever their namespace. The
// caller of serve does the work: a goroutine of the loop, or any probe that has to know that no request is left unread.
type loop struct {
	mu      sync.Mutex // held while serving, and for everything below
	epoll   int
	file    *os.File // epoll, in the Go poller; nil while there is no socket
	members map[int]member
	tickets map[string]*ticket
	events  [256]unix.EpollEvent
	scratch [maxDatagram + 1]byte
}

// member is a socket in the loop.
type member interface {
	// ready serves everything that needs no waiting. The caller holds loop.mu.
	ready()
}

// ticket holds what a probe learns about its request from a server in the same process.
type ticket struct {
	answered bool // the server has passed the answer to the kernel
	by       Greeting
}

// servers is the only loop. It runs while it has a socket.
var servers = loop{members: map[int]member{}, tickets: map[string]*ticket{}}

// add adds a socket to the loop. The caller holds mu.
func (l *loop) add(fd int, m member) error {
	if l.file == nil {
		if err := l.start(); err != nil {
			return err
		}
	}
	if err := l.ctl(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN); err != nil {
		l.stopIfEmpty()
		return err
	}
	l.members[fd] = m
	return nil
}

// remove removes and closes a socket. The caller holds mu.
func (l *loop) remove(fd int) {
	delete(l.members, fd)
	_ = unix.Close(fd) // which also removes it from the epoll set
	l.stopIfEmpty()
}

func (l *loop) stopIfEmpty() {
	if len(l.members) == 0 {
		go l.file.Close() // Close waits for the reader, which may be waiting for mu
		l.file = nil
	}
}

func (l *loop) ctl(op, fd int, events uint32) error {
	if err := unix.EpollCtl(l.epoll, op, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

func (l *loop) start() error {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("epoll_create: %w", err)
	}
	if err := unix.SetNonblock(epoll, true); err != nil { // or the Go poller rejects it
		return errors.Join(fmt.Errorf("set O_NONBLOCK: %w", err), unix.Close(epoll))
	}
	l.epoll, l.file = epoll, os.NewFile(uintptr(epoll), "servers")
	wait, err := l.file.SyscallConn()
	if err != nil {
		return err
	}
	go func() {
		_ = wait.Read(func(uintptr) bool { // until the file is closed
			l.serve()
			return false
		})
	}()
	return nil
}

// serve answers every request that is in a socket now. It returns false if the process has no servers.
func (l *loop) serve() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		l.serveLocked()
	}
	return l.file != nil
}

// serveLocked serves until nothing is ready, because the Go poller reports only new events. The limit is for a socket
// that stays ready, such as a listener while the process has no file descriptors left.
func (l *loop) serveLocked() {
	for range 10_000 {
		n, err := unix.EpollWait(l.epoll, l.events[:], 0)
		if err == unix.EINTR {
			continue
		}
		if n <= 0 {
			return
		}
		for _, e := range l.events[:n] {
			if m := l.members[int(e.Fd)]; m != nil {
				m.ready()
			}
		}
	}
}

// expect announces a nonce. The caller calls done when it no longer waits for the answer.
func (l *loop) expect(nonce string) (t *ticket, done func()) {
	t = &ticket{}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tickets[nonce] = t
	return t, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.tickets, nonce)
	}
}

// reached reports whether a server of this process has answered the ticket's request, and returns the answer.
func (l *loop) reached(t *ticket) (Greeting, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return t.by, t.answered
}

// answered marks a request as answered. The caller holds mu.
func (l *loop) answered(g Greeting) {
	if t := l.tickets[g.Nonce]; t != nil {
		t.by, t.answered = g, true
	}
}
