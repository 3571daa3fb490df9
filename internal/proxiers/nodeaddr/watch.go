// SPDX-License-Identifier: Apache-2.0

package nodeaddr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
)

// Watcher returns the addresses of a namespace. It lists them only after the kernel has reported a change: to list a
// device with ten thousand addresses of Services takes tens of milliseconds.
type Watcher struct {
	ns      *netns.NS
	family  lab.Family
	without string // a device whose addresses do not count

	socket int // events of this family; -1 if it is not open
	index  int // of the device that does not count, 0 if it does not exist
	known  []netip.Addr
}

// NewWatcher makes a watcher. The addresses of the device without do not count, if it exists.
func NewWatcher(ns *netns.NS, f lab.Family, without string) *Watcher {
	return &Watcher{ns: ns, family: f, without: without, socket: -1}
}

// Local returns the sorted addresses.
func (w *Watcher) Local() ([]netip.Addr, error) {
	if w.socket < 0 {
		if err := w.open(); err != nil {
			return nil, err
		}
	} else if !w.changed() {
		return w.known, nil
	}
	if err := w.list(); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w.known, nil
}

// Close closes the watcher's socket. The watcher can be used again.
func (w *Watcher) Close() error {
	if w.socket < 0 {
		return nil
	}
	err := unix.Close(w.socket)
	w.socket = -1
	return err
}

func (w *Watcher) open() error {
	fd, err := w.ns.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	group := uint32(unix.RTMGRP_IPV4_IFADDR)
	if w.family == lab.V6 {
		group = unix.RTMGRP_IPV6_IFADDR
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: group}); err != nil {
		return errors.Join(fmt.Errorf("%s: watch addresses: %w", w.ns.Name(), err), unix.Close(fd))
	}
	w.socket = fd
	return nil
}

// changed reads all queued events. The kernel queues an event before the change returns to its caller, so none is still
// under way. An overflow of the queue counts as a change.
func (w *Watcher) changed() bool {
	buffer := make([]byte, 1<<15)
	changed := false
	for {
		n, _, err := unix.Recvfrom(w.socket, buffer, 0)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return changed
		case err != nil:
			changed = true
			if !errors.Is(err, unix.ENOBUFS) {
				return true
			}
		default:
			changed = changed || w.concerns(buffer[:n])
		}
	}
}

// concerns reports whether a message is about a device that counts. It consists of a struct nlmsghdr and a struct
// ifaddrmsg, whose last field is the device.
func (w *Watcher) concerns(message []byte) bool {
	const indexAt = unix.SizeofNlMsghdr + 4
	if len(message) < indexAt+4 {
		return true
	}
	return int(binary.NativeEndian.Uint32(message[indexAt:])) != w.index
}

func (w *Watcher) list() error {
	w.index = 0
	if w.without != "" {
		link, err := w.ns.Netlink().LinkByName(w.without)
		if missing := (netlink.LinkNotFoundError{}); err != nil && !errors.As(err, &missing) {
			return fmt.Errorf("%s: find %s: %w", w.ns.Name(), w.without, err)
		}
		if err == nil {
			w.index = link.Attrs().Index
		}
	}
	var err error
	w.known, err = local(w.ns, w.family, w.index)
	return err
}
