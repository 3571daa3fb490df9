// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// LogGroups receives the packets that rules of a namespace send to NFLOG groups. A packet has been received when the
// call that sent it returns.
type LogGroups struct {
	ns     string
	socket *nfnetlink
}

// LoggedPacket is a packet that a rule has logged, with the rule's prefix.
type LoggedPacket struct {
	Prefix string
	Packet []byte // from the IP header on, truncated
	Mark   uint32 // of the packet
	Hook   uint8  // the number of the netfilter hook (enum nf_inet_hooks)
}

// Messages and attributes of linux/netfilter/nfnetlink_log.h.
const (
	nflogPacket = unix.NFNL_SUBSYS_ULOG << 8
	nflogConfig = unix.NFNL_SUBSYS_ULOG<<8 | 1

	nflogCommand, nflogMode, nflogThreshold = 1, 2, 5 // attributes of a configuration
	nflogHeader, nflogMark                  = 1, 2    // attributes of a packet
	nflogPayload, nflogPrefix               = 9, 10

	nflogBind, nflogCopyPacket = 1, 2
	nflogCopied                = 128 // bytes of each packet: the headers
)

// OpenLogGroups subscribes to NFLOG groups of a namespace. A group has one subscriber at a time.
func OpenLogGroups(ns *netns.NS, groups ...uint16) (*LogGroups, error) {
	s, err := openNfnetlink(ns)
	if err != nil {
		return nil, fmt.Errorf("NFLOG: %w", err)
	}
	l := &LogGroups{ns: ns.Name(), socket: s}
	err = receiveBuffer(s.fd, eventBuffer)
	for _, g := range groups {
		err = errors.Join(err, l.bind(g))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: NFLOG: %w", l.ns, err), l.Close())
	}
	return l, nil
}

// bind subscribes to a group, with delivery of each packet at once.
func (l *LogGroups) bind(group uint16) error {
	h := netlink.Header{Type: nflogConfig, Flags: netlink.Acknowledge, Sequence: 1}
	_, err := l.socket.ask(h, unix.AF_UNSPEC, group, func(e *netlink.AttributeEncoder) {
		e.Bytes(nflogCommand, []byte{nflogBind})
	})
	if err != nil {
		return fmt.Errorf("bind group %d: %w", group, err)
	}
	_, err = l.socket.ask(h, unix.AF_UNSPEC, group, func(e *netlink.AttributeEncoder) {
		e.Bytes(nflogMode, append(binary.BigEndian.AppendUint32(nil, nflogCopied), nflogCopyPacket, 0))
		e.Uint32(nflogThreshold, 1)
	})
	if err != nil {
		return fmt.Errorf("configure group %d: %w", group, err)
	}
	return nil
}

// Drain returns the packets logged since the last call. It does not wait.
func (l *LogGroups) Drain() ([]LoggedPacket, error) {
	var out []LoggedPacket
	for {
		n, _, err := unix.Recvfrom(l.socket.fd, l.socket.buffer[:], unix.MSG_DONTWAIT)
		switch err {
		case nil:
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return out, nil
		default: // ENOBUFS: some were lost
			return out, fmt.Errorf("%s: NFLOG: %w", l.ns, os.NewSyscallError("recvfrom", err))
		}
		messages, err := syscall.ParseNetlinkMessage(l.socket.buffer[:n])
		if err != nil {
			return out, fmt.Errorf("%s: NFLOG: %w", l.ns, err)
		}
		for _, m := range messages {
			if m.Header.Type != nflogPacket || len(m.Data) <= nfgenmsgSize {
				continue
			}
			p, err := parseLogged(m.Data[nfgenmsgSize:])
			if err != nil {
				return out, fmt.Errorf("%s: NFLOG: %w", l.ns, err)
			}
			out = append(out, p)
		}
	}
}

func parseLogged(attributes []byte) (LoggedPacket, error) {
	var p LoggedPacket
	d, err := netlink.NewAttributeDecoder(attributes)
	if err != nil {
		return p, err
	}
	d.ByteOrder = binary.BigEndian
	for d.Next() {
		switch d.Type() {
		case nflogHeader: // struct nfulnl_msg_packet_hdr: the protocol, and the hook
			if b := d.Bytes(); len(b) > 2 {
				p.Hook = b[2]
			}
		case nflogMark:
			p.Mark = d.Uint32()
		case nflogPrefix:
			p.Prefix = d.String()
		case nflogPayload:
			p.Packet = append([]byte(nil), d.Bytes()...)
		}
	}
	return p, d.Err()
}

// Close ends the subscription.
func (l *LogGroups) Close() error { return l.socket.close() }
