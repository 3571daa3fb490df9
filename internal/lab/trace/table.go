// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// table is a table of nftables that belongs to a socket: nobody else can change it, "nft flush ruleset" leaves it
// alone, and the kernel removes it when the socket is closed, however the process ends (NFT_TABLE_F_OWNER, Linux 5.12).
type table struct {
	family uint8
	chains []chain
}

type chain struct {
	name string
	// base means that packets enter the chain at a hook. Others are only names to jump to.
	base     bool
	hook     uint32 // enum nf_inet_hooks, the same numbers as enum nf_br_hooks
	priority int
	rules    [][]expression
}

// expression is a part of a rule. It holds the attributes of its kind.
type expression struct {
	kind string
	fill func(*netlink.AttributeEncoder)
}

// Constants of linux/netfilter/nf_tables.h and linux/netfilter.h.
const (
	flagOwner = 2 // NFT_TABLE_F_OWNER
	accept    = 1 // NF_ACCEPT
)

// install creates the table in a namespace. The table lasts until the returned socket is closed.
func (t table) install(ns *netns.NS) (*socket, error) {
	s, err := openSocket(ns)
	if err != nil {
		return nil, err
	}
	if err := s.ask(t.creation()...); err != nil {
		_ = s.close() // the error above says more
		return nil, err
	}
	s.undo = t.removal()
	return s, nil
}

// removal returns a transaction that removes the table.
func (t table) removal() []request {
	return transaction(request{
		kind: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_DELTABLE, flags: netlink.Acknowledge, family: t.family,
		fill: func(e *netlink.AttributeEncoder) { e.String(unix.NFTA_TABLE_NAME, tableName) },
	})
}

// transaction returns requests that the kernel carries out together, or not at all.
func transaction(all ...request) []request {
	begin := request{kind: unix.NFNL_MSG_BATCH_BEGIN, number: unix.NFNL_SUBSYS_NFTABLES}
	end := request{kind: unix.NFNL_MSG_BATCH_END, number: unix.NFNL_SUBSYS_NFTABLES}
	return slices.Concat([]request{begin}, all, []request{end})
}

// creation returns a transaction that creates the table.
func (t table) creation() []request {
	message := func(kind int, fill func(*netlink.AttributeEncoder)) request {
		const create = netlink.Create | netlink.Append
		return request{kind: unix.NFNL_SUBSYS_NFTABLES<<8 | kind, flags: create, family: t.family, fill: fill}
	}
	all := []request{
		message(unix.NFT_MSG_NEWTABLE, func(e *netlink.AttributeEncoder) {
			e.String(unix.NFTA_TABLE_NAME, tableName)
			e.Uint32(unix.NFTA_TABLE_FLAGS, flagOwner)
		}),
	}
	for _, c := range t.chains { // before the rules, which jump to them
		all = append(all, message(unix.NFT_MSG_NEWCHAIN, c.encode))
	}
	for _, c := range t.chains {
		for _, r := range c.rules {
			all = append(all, message(unix.NFT_MSG_NEWRULE, func(e *netlink.AttributeEncoder) { encodeRule(e, c.name, r) }))
		}
	}
	all[len(all)-1].flags |= netlink.Acknowledge
	return transaction(all...)
}

func (c chain) encode(e *netlink.AttributeEncoder) {
	e.String(unix.NFTA_CHAIN_TABLE, tableName)
	e.String(unix.NFTA_CHAIN_NAME, c.name)
	if !c.base {
		return
	}
	e.Nested(unix.NFTA_CHAIN_HOOK, func(e *netlink.AttributeEncoder) error {
		e.Uint32(unix.NFTA_HOOK_HOOKNUM, c.hook)
		e.Uint32(unix.NFTA_HOOK_PRIORITY, uint32(int32(c.priority)))
		return nil
	})
	e.Uint32(unix.NFTA_CHAIN_POLICY, accept)
	e.String(unix.NFTA_CHAIN_TYPE, "filter")
}

func encodeRule(e *netlink.AttributeEncoder, chain string, expressions []expression) {
	e.String(unix.NFTA_RULE_TABLE, tableName)
	e.String(unix.NFTA_RULE_CHAIN, chain)
	e.Nested(unix.NFTA_RULE_EXPRESSIONS, func(e *netlink.AttributeEncoder) error {
		for _, x := range expressions {
			e.Nested(unix.NFTA_LIST_ELEM, func(e *netlink.AttributeEncoder) error {
				e.String(unix.NFTA_EXPR_NAME, x.kind)
				e.Nested(unix.NFTA_EXPR_DATA, func(e *netlink.AttributeEncoder) error {
					x.fill(e)
					return nil
				})
				return nil
			})
		}
		return nil
	})
}

// value encodes a constant.
func value(e *netlink.AttributeEncoder, attribute uint16, b []byte) {
	e.Nested(attribute, func(e *netlink.AttributeEncoder) error {
		e.Bytes(unix.NFTA_DATA_VALUE, b)
		return nil
	})
}

// load reads a register from a field of the packet (key of meta or of connection tracking).
func load(kind string, key uint32) expression {
	return expression{kind, func(e *netlink.AttributeEncoder) { // NFTA_CT_* have the numbers of NFTA_META_*
		e.Uint32(unix.NFTA_META_DREG, unix.NFT_REG_1)
		e.Uint32(unix.NFTA_META_KEY, key)
	}}
}

// masked keeps the bits of a mask in the register.
func masked(mask []byte) expression {
	return expression{"bitwise", func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.NFTA_BITWISE_SREG, unix.NFT_REG_1)
		e.Uint32(unix.NFTA_BITWISE_DREG, unix.NFT_REG_1)
		e.Uint32(unix.NFTA_BITWISE_LEN, uint32(len(mask)))
		value(e, unix.NFTA_BITWISE_MASK, mask)
		value(e, unix.NFTA_BITWISE_XOR, make([]byte, len(mask)))
	}}
}

// compared goes on with the rule if the register equals a value, or if it does not.
func compared(op uint32, b []byte) expression {
	return expression{"cmp", func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.NFTA_CMP_SREG, unix.NFT_REG_1)
		e.Uint32(unix.NFTA_CMP_OP, op)
		value(e, unix.NFTA_CMP_DATA, b)
	}}
}

// isProtocol matches a transport protocol.
func isProtocol(number uint8) []expression {
	return []expression{load("meta", unix.NFT_META_L4PROTO), compared(unix.NFT_CMP_EQ, []byte{number})}
}

// isField matches bytes at an offset of a header, of which only the bits of the mask count. A nil mask is all bits.
func isField(header, offset uint32, mask, b []byte) []expression {
	all := []expression{{"payload", func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.NFTA_PAYLOAD_DREG, unix.NFT_REG_1)
		e.Uint32(unix.NFTA_PAYLOAD_BASE, header)
		e.Uint32(unix.NFTA_PAYLOAD_OFFSET, offset)
		e.Uint32(unix.NFTA_PAYLOAD_LEN, uint32(len(b)))
	}}}
	if mask != nil {
		all = append(all, masked(mask))
	}
	return append(all, compared(unix.NFT_CMP_EQ, b))
}

// hasBit matches a bit of the state or status of the connection, which are in the order of the machine.
func hasBit(key, bit uint32) []expression {
	return []expression{load("ct", key), masked(native(bit)), compared(unix.NFT_CMP_NEQ, native(0))}
}

// setTraceBit makes the kernel tell of the rules that the packet meets.
var setTraceBit = []expression{
	{"immediate", func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_1)
		value(e, unix.NFTA_IMMEDIATE_DATA, []byte{1})
	}},
	{"meta", func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.NFTA_META_SREG, unix.NFT_REG_1)
		e.Uint32(unix.NFTA_META_KEY, unix.NFT_META_NFTRACE)
	}},
}

// log sends the beginning of the packet to a group of NFLOG.
func log(group uint16, prefix string) expression {
	return expression{"log", func(e *netlink.AttributeEncoder) {
		const toGroup, withPrefix = 1, 2 // NFTA_LOG_GROUP, NFTA_LOG_PREFIX
		e.Uint16(toGroup, group)
		e.String(withPrefix, prefix)
	}}
}

// lead goes to another chain of the table: it comes back after a jump, and ends this chain after a goto.
func lead(verdict int32, to string) expression {
	return expression{"immediate", func(e *netlink.AttributeEncoder) {
		const code, chain = verdictCode, verdictChain
		e.Uint32(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT)
		e.Nested(unix.NFTA_IMMEDIATE_DATA, func(e *netlink.AttributeEncoder) error {
			e.Nested(unix.NFTA_DATA_VERDICT, func(e *netlink.AttributeEncoder) error {
				e.Uint32(code, uint32(verdict))
				e.String(chain, to)
				return nil
			})
			return nil
		})
	}}
}

// rule joins parts of a rule.
func rule(parts ...[]expression) []expression { return slices.Concat(parts...) }
