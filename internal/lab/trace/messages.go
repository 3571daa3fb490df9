// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/binary"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
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
}

// Message type, multicast group, and attributes of linux/netfilter/nf_tables.h and nfnetlink.h (enum
// nft_trace_attributes).
const (
	traceMessage = unix.NFNL_SUBSYS_NFTABLES<<8 | 17
	traceGroup   = 9 // NFNLGRP_NFTRACE

	attrTable, attrChain, attrHandle, attrKind, attrVerdict = 1, 2, 3, 4, 5
	attrID, attrNetwork, attrTransport, attrMark            = 6, 8, 9, 14
	attrPolicy                                              = 16
	verdictCode, verdictChain                               = 1, 2

	kindPolicy, kindReturn, kindRule = 1, 2, 3
)

func parse(family uint8, attributes []byte) (*message, error) {
	m := &message{family: family}
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
			m.network = d.Bytes()
		case attrTransport:
			m.transport = d.Bytes()
		case attrMark:
			m.mark = d.Uint32()
		case attrPolicy:
			m.policy = int32(d.Uint32())
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

// families are the names of families in messages.
var families = map[uint8]string{
	unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6", unix.NFPROTO_BRIDGE: "bridge",
	unix.NFPROTO_NETDEV: "netdev",
}

// logged is a packet that a rule has logged to a group of NFLOG.
type logged struct {
	group  uint16
	prefix string
	packet []byte // from the IP header on, truncated
	mark   uint32
	hook   uint8 // the number of the netfilter hook (enum nf_inet_hooks)
}

// Messages and attributes of linux/netfilter/nfnetlink_log.h.
const (
	logMessage = unix.NFNL_SUBSYS_ULOG << 8
	logConfig  = unix.NFNL_SUBSYS_ULOG<<8 | 1

	configCommand, configMode, configThreshold = 1, 2, 5
	logHeader, logMark, logPayload, logPrefix  = 1, 2, 9, 10

	commandBind, commandUnbind, copyPacket = 1, 2, 2

	logCopied = 256 // bytes of each packet: the headers, and those of a packet that an ICMP error quotes
)

// bindLog subscribes to a group, with delivery of each packet at once.
func (s *socket) bindLog(group uint16) error {
	bind := logGroup(group, commandBind)
	mode := bind
	mode.fill = func(e *netlink.AttributeEncoder) {
		e.Bytes(configMode, append(binary.BigEndian.AppendUint32(nil, logCopied), copyPacket, 0))
		e.Uint32(configThreshold, 1)
	}
	return s.ask(bind, mode)
}

// logGroup returns a command for a group.
func logGroup(group uint16, command byte) request {
	return request{
		kind: logConfig, flags: netlink.Acknowledge, number: group,
		fill: func(e *netlink.AttributeEncoder) { e.Bytes(configCommand, []byte{command}) },
	}
}

// parseLogged reads a message from the number of the group on.
func parseLogged(b []byte) (*logged, error) {
	l := &logged{group: binary.BigEndian.Uint16(b)}
	d, err := netlink.NewAttributeDecoder(b[2:])
	if err != nil {
		return l, err
	}
	d.ByteOrder = binary.BigEndian
	for d.Next() {
		switch d.Type() {
		case logHeader: // struct nfulnl_msg_packet_hdr: the protocol, and the hook
			if b := d.Bytes(); len(b) > 2 {
				l.hook = b[2]
			}
		case logMark:
			l.mark = d.Uint32()
		case logPrefix:
			l.prefix = d.String()
		case logPayload:
			l.packet = d.Bytes()
		}
	}
	return l, d.Err()
}
