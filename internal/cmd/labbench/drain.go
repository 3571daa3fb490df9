// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/lab/link"
	"github.com/viplab/viplab/lab/netns"
)

// drain waits until the kernel has freed all namespaces that were let go of. It does so in one queue, in order, and a
// wire ends with the namespace of its other end: so a namespace is queued behind the others, and the end of a wire to
// it tells when its turn came.
type drain struct {
	anchor *netns.NS
	events int
}

func newDrain() (*drain, error) {
	anchor, err := netns.New("anchor")
	if err != nil {
		return nil, err
	}
	events, err := anchor.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	return &drain{anchor, events}, unix.Bind(events, &unix.SockaddrNetlink{Family: unix.AF_NETLINK,
		Groups: unix.RTMGRP_LINK})
}

func (d *drain) close() error { return errors.Join(unix.Close(d.events), d.anchor.Close()) }

// wait queues two namespaces one after the other: the first may still be taken apart together with what came before.
func (d *drain) wait() error {
	for range 2 {
		if err := d.pass(); err != nil {
			return fmt.Errorf("wait for the kernel to free namespaces: %w", err)
		}
	}
	return nil
}

func (d *drain) pass() error {
	last, err := netns.New("last")
	if err != nil {
		return err
	}
	wire := link.Veth{
		Dev: link.Dev{Name: "last", Index: 100}, MAC: link.MAC{2, 0, 0, 0, 0, 1}, MTU: 1500,
		Peer: link.Peer{Dev: link.Dev{Name: "anchor", Index: 100}, MAC: link.MAC{2, 0, 0, 0, 0, 2}, NS: last},
	}
	if err := link.Apply(d.anchor, wire); err != nil {
		return err
	}
	if err := last.Close(); err != nil {
		return err
	}
	var event [32 << 10]byte
	for {
		n, err := unix.Read(d.events, event[:])
		if err != nil {
			return err
		}
		if n >= unix.SizeofNlMsghdr && binary.NativeEndian.Uint16(event[4:]) == unix.RTM_DELLINK {
			return nil
		}
	}
}
