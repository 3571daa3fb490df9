// SPDX-License-Identifier: Apache-2.0

package trace

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

// message is what the kernel says of a packet with the trace bit at one point (NFT_MSG_TRACE).
type message struct {
	id                 uint32 // the same for all messages of a packet in a base chain
	family             uint8  // NFPROTO_*
	table, chain       string
	handle             uint64 // of the rule
	kind               uint32 // kindPolicy, kindReturn or kindRule
	verdict            int32
	jump               string // the chain that the verdict leads to
	policy             int32
	mark               uint32
	network, transport []byte // the first bytes of the headers; the first message of a base chain has them
	// state and status of the connection, 0 if there is none or the kernel does not tell (before Linux 6.17).
	state, status uint32
}

// Message type, multicast group, and attributes of linux/netfilter/nf_tables.h and nfnetlink.h (enum
// nft_trace_attributes).
const (
	traceMessage = unix.NFNL_SUBSYS_NFTABLES<<8 | 17
	traceGroup   = 9 // NFNLGRP_NFTRACE

	attrTable, attrChain, attrHandle, attrKind, attrVerdict = 1, 2, 3, 4, 5
	attrID, attrNetwork, attrTransport, attrMark            = 6, 8, 9, 14
	attrPolicy, attrStatus, attrState                       = 16, 20, 21
	verdictCode, verdictChain                               = 1, 2

	kindPolicy, kindReturn, kindRule = 1, 2, 3
)

// listener receives the messages of a namespace.
type listener struct {
	ns     string
	fd     int
	buffer [64 << 10]byte
}

// receiveBuffer is the size of the socket's buffer. Users other than root get up to net.core.rmem_max.
const receiveBuffer = 8 << 20

func listen(ns *netns.NS) (*listener, error) {
	fd, err := ns.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("%s: trace: %w", ns.Name(), err)
	}
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer)
	if errors.Is(err, unix.EPERM) {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, traceGroup)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: trace: %w", ns.Name(), err), unix.Close(fd))
	}
	return &listener{ns: ns.Name(), fd: fd}, nil
}

// drain returns the messages since the last call. It does not wait.
func (l *listener) drain() (all []message, err error) {
	for {
		n, _, err := unix.Recvfrom(l.fd, l.buffer[:], unix.MSG_DONTWAIT)
		switch err {
		case nil:
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return all, nil
		default: // ENOBUFS: some were lost
			return all, fmt.Errorf("%s: trace: %w", l.ns, os.NewSyscallError("recvfrom", err))
		}
		messages, err := syscall.ParseNetlinkMessage(l.buffer[:n])
		if err != nil {
			return all, fmt.Errorf("%s: trace: %w", l.ns, err)
		}
		for _, m := range messages {
			const header = 4 // struct nfgenmsg
			if m.Header.Type != traceMessage || len(m.Data) < header {
				continue
			}
			parsed, err := parse(m.Data[0], m.Data[header:])
			if err != nil {
				return all, fmt.Errorf("%s: trace: %w", l.ns, err)
			}
			all = append(all, parsed)
		}
	}
}

func (l *listener) close() error { return os.NewSyscallError("close", unix.Close(l.fd)) }

func parse(family uint8, attributes []byte) (message, error) {
	m := message{family: family}
	d, err := netlink.NewAttributeDecoder(attributes)
	if err != nil {
		return m, err
	}
	d.ByteOrder = binary.BigEndian
	for d.Next() {
		switch d.Type() {
		case attrTable:
			m.table = d.String()
		case attrChain:
			m.chain = d.String()
		case attrHandle:
			m.handle = d.Uint64()
		case attrKind:
			m.kind = d.Uint32()
		case attrVerdict:
			if err := m.parseVerdict(d.Bytes()); err != nil {
				return m, err
			}
		case attrID:
			m.id = d.Uint32()
		case attrNetwork:
			m.network = append([]byte(nil), d.Bytes()...)
		case attrTransport:
			m.transport = append([]byte(nil), d.Bytes()...)
		case attrMark:
			m.mark = d.Uint32()
		case attrPolicy:
			m.policy = int32(d.Uint32())
		case attrStatus:
			m.status = d.Uint32()
		case attrState:
			m.state = d.Uint32()
		}
	}
	return m, d.Err()
}

// parseVerdict reads a nested attribute, which the kernel does not mark as one.
func (m *message) parseVerdict(b []byte) error {
	d, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return err
	}
	d.ByteOrder = binary.BigEndian
	for d.Next() {
		switch d.Type() {
		case verdictCode:
			m.verdict = int32(d.Uint32())
		case verdictChain:
			m.jump = d.String()
		}
	}
	return d.Err()
}

// verdicts are the names of codes of verdicts (linux/netfilter.h, enum nft_verdicts).
var verdicts = map[int32]string{
	0: "drop", 1: "accept", 2: "stolen", 3: "queue", 4: "repeat", -1: "continue", -2: "break", -3: "jump", -4: "goto",
	-5: "return",
}
