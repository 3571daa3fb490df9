// SPDX-License-Identifier: Apache-2.0

package link

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// Masquerade is what a network plugin does for pods that talk to the world: packets of the pods of a node that leave
// for anything but a pod or a node get the address of the device they leave by. As nft prints it:
//
//	table inet viplab {
//		set nodes4 { type ipv4_addr; elements = { 192.168.7.11, ... } }
//		chain postrouting {
//			type nat hook postrouting priority srcnat + 10; policy accept;
//			ip saddr 10.244.1.0/24 ip daddr != 10.244.0.0/16 ip daddr != @nodes4 masquerade
//		}
//	}
//
// and the same for IPv6. The table is the lab's own, and its priority puts it after those of Service proxies, whichever
// of them comes and goes, so it never decides about a packet that they want to masquerade themselves.
type Masquerade struct {
	// Pods and Cluster are the pod ranges of the node and of all nodes, by family, in whole bytes.
	Pods, Cluster []netip.Prefix
	// Nodes are the addresses of the nodes. ExemptFromMasquerade and EndMasqueradeExemption change them later.
	Nodes []netip.Addr
}

const masqueradeTable = "viplab"

// Install writes the rules. An nft process for each node (20 ms) would take longer than making the node.
func (m Masquerade) Install(ns *netns.NS) error {
	return transact(ns, "masquerade pods", func(r *request) {
		r.nft(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, func() {
			r.text(unix.NFTA_TABLE_NAME, masqueradeTable)
		})
		r.nft(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, func() {
			r.text(unix.NFTA_CHAIN_TABLE, masqueradeTable)
			r.text(unix.NFTA_CHAIN_NAME, "postrouting")
			r.nest(unix.NFTA_CHAIN_HOOK, func() {
				r.u32be(unix.NFTA_HOOK_HOOKNUM, unix.NF_INET_POST_ROUTING)
				r.u32be(unix.NFTA_HOOK_PRIORITY, 110)
			})
			r.text(unix.NFTA_CHAIN_TYPE, "nat")
		})
		for i, pods := range m.Pods {
			r.nftNodeSet(pods.Addr(), uint32(i+1))
			r.nftRule(pods, m.Cluster[i], uint32(i+1))
		}
		r.nftElements(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, m.Nodes)
	})
}

// ExemptFromMasquerade adds addresses of nodes, to which pods talk without translation.
func ExemptFromMasquerade(ns *netns.NS, nodes ...netip.Addr) error {
	return transact(ns, "exempt node from masquerade", func(r *request) {
		r.nftElements(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, nodes)
	})
}

// EndMasqueradeExemption removes addresses of nodes.
func EndMasqueradeExemption(ns *netns.NS, nodes ...netip.Addr) error {
	return transact(ns, "stop exempting node from masquerade",
		func(r *request) { r.nftElements(unix.NFT_MSG_DELSETELEM, 0, nodes) })
}

// nftNodeSet makes the set of node addresses of a family. The type number is what nft prints as ipv4_addr or ipv6_addr.
func (r *request) nftNodeSet(like netip.Addr, id uint32) {
	typ := uint32(7)
	if like.Is6() {
		typ = 8
	}
	r.nft(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, func() {
		r.text(unix.NFTA_SET_TABLE, masqueradeTable)
		r.text(unix.NFTA_SET_NAME, nodeSet(like))
		r.u32be(unix.NFTA_SET_KEY_TYPE, typ)
		r.u32be(unix.NFTA_SET_KEY_LEN, uint32(len(like.AsSlice())))
		r.u32be(unix.NFTA_SET_ID, id)
	})
}

func nodeSet(like netip.Addr) string {
	if like.Is4() {
		return "nodes4"
	}
	return "nodes6"
}

// nftElements changes the sets of node addresses, those of one family after those of the other.
func (r *request) nftElements(typ, flags uint16, nodes []netip.Addr) {
	for _, v4 := range []bool{true, false} {
		of := slices.DeleteFunc(slices.Clone(nodes), func(a netip.Addr) bool { return a.Is4() != v4 })
		if len(of) == 0 {
			continue
		}
		r.nft(typ, flags, func() {
			r.text(unix.NFTA_SET_ELEM_LIST_TABLE, masqueradeTable)
			r.text(unix.NFTA_SET_ELEM_LIST_SET, nodeSet(of[0]))
			r.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func() {
				for _, a := range of {
					r.nest(unix.NFTA_LIST_ELEM, func() {
						r.nest(unix.NFTA_SET_ELEM_KEY, func() { r.addr(unix.NFTA_DATA_VALUE, a) })
					})
				}
			})
		})
	}
}

// nftRule masquerades what comes from pods and goes neither to the cluster nor to the nodes in the set.
func (r *request) nftRule(pods, cluster netip.Prefix, set uint32) {
	proto, source, destination, size := byte(unix.NFPROTO_IPV4), uint32(12), uint32(16), uint32(4)
	if pods.Addr().Is6() {
		proto, source, destination, size = unix.NFPROTO_IPV6, 8, 24, 16
	}
	const register, equal, unequal = unix.NFT_REG_1, unix.NFT_CMP_EQ, unix.NFT_CMP_NEQ
	load := func(offset, length uint32) {
		r.nftExpr("payload", func() {
			r.u32be(unix.NFTA_PAYLOAD_DREG, register)
			r.u32be(unix.NFTA_PAYLOAD_BASE, unix.NFT_PAYLOAD_NETWORK_HEADER)
			r.u32be(unix.NFTA_PAYLOAD_OFFSET, offset)
			r.u32be(unix.NFTA_PAYLOAD_LEN, length)
		})
	}
	compare := func(op uint32, with []byte) {
		r.nftExpr("cmp", func() {
			r.u32be(unix.NFTA_CMP_SREG, register)
			r.u32be(unix.NFTA_CMP_OP, op)
			r.nest(unix.NFTA_CMP_DATA, func() { r.bytes(unix.NFTA_DATA_VALUE, with) })
		})
	}
	within := func(offset uint32, op uint32, p netip.Prefix) {
		whole := p.Bits() / 8
		load(offset, uint32(whole))
		compare(op, p.Addr().AsSlice()[:whole])
	}
	r.nft(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, func() {
		r.text(unix.NFTA_RULE_TABLE, masqueradeTable)
		r.text(unix.NFTA_RULE_CHAIN, "postrouting")
		r.nest(unix.NFTA_RULE_EXPRESSIONS, func() {
			r.nftExpr("meta", func() {
				r.u32be(unix.NFTA_META_DREG, register)
				r.u32be(unix.NFTA_META_KEY, unix.NFT_META_NFPROTO)
			})
			compare(equal, []byte{proto})
			within(source, equal, pods)
			within(destination, unequal, cluster)
			load(destination, size)
			r.nftExpr("lookup", func() {
				r.text(unix.NFTA_LOOKUP_SET, nodeSet(pods.Addr()))
				r.u32be(unix.NFTA_LOOKUP_SREG, register)
				r.u32be(unix.NFTA_LOOKUP_SET_ID, set)
				r.u32be(unix.NFTA_LOOKUP_FLAGS, unix.NFT_LOOKUP_F_INV)
			})
			r.nftExpr("masq", func() {})
		})
	})
}

func (r *request) nftExpr(name string, body func()) {
	r.nest(unix.NFTA_LIST_ELEM, func() {
		r.text(unix.NFTA_EXPR_NAME, name)
		r.nest(unix.NFTA_EXPR_DATA, body)
	})
}

// nft adds one message about the inet family.
func (r *request) nft(typ, flags uint16, body func()) {
	r.message(unix.NFNL_SUBSYS_NFTABLES<<8|typ, flags, func() {
		r.b = append(r.b, unix.NFPROTO_INET, 0, 0, 0) // struct nfgenmsg
		body()
	})
}

// transact sends messages to nf_tables as one transaction.
func transact(ns *netns.NS, what string, messages func(*request)) error {
	if err := commit(ns, messages); err != nil {
		return fmt.Errorf("%s: %s: %w", ns.Name(), what, err)
	}
	return nil
}

func commit(ns *netns.NS, messages func(*request)) error {
	r := &request{}
	bracket := func(typ uint16) {
		r.message(typ, 0, func() {
			r.b = append(r.b, 0, 0, 0, unix.NFNL_SUBSYS_NFTABLES) // struct nfgenmsg, the subsystem in network order
		})
	}
	bracket(unix.NFNL_MSG_BATCH_BEGIN)
	messages(r)
	last := 0
	for at := 0; at < len(r.b); at += int(host.Uint32(r.b[at:])) {
		last = at
	}
	r.header(last).setFlags(r.header(last).flags() | unix.NLM_F_ACK)
	bracket(unix.NFNL_MSG_BATCH_END)
	r.number(1)
	final, first := r.header(last).seq(), uint32(1)

	socket, err := ns.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	if _, err := unix.Write(socket, r.b); err != nil {
		return err
	}
	var refused error
	var buf [16 << 10]byte
	for {
		n, err := unix.Read(socket, buf[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		done, err := eachMessage(buf[:n], func(m nlmsg) (bool, error) {
			if m.typ() == unix.NLMSG_ERROR && refused == nil {
				refused = m.err()
			}
			return m.seq() == final || m.seq() == first, nil // the first is answered if the whole transaction fails
		})
		if err != nil {
			return err
		}
		if done {
			return refused
		}
	}
}
