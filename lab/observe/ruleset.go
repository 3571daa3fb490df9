// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"github.com/ti-mo/netfilter"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// RulesetChanges returns a channel that receives a value after transactions on a namespace's nftables ruleset, which
// includes iptables-nft but not iptables-legacy. One value can stand for several transactions. The channel is closed
// when the context ends.
func RulesetChanges(ctx context.Context, ns *netns.NS) (<-chan struct{}, error) {
	return ticks(ctx, ns, isNewGeneration)
}

// ChainChanges is RulesetChanges limited to changes of rules in the named chains, in any table of the protocol (such as
// unix.NFPROTO_IPV4).
func ChainChanges(ctx context.Context, ns *netns.NS, protocol uint8, chains ...string) (<-chan struct{}, error) {
	return ticks(ctx, ns, func(m netlink.Message) bool {
		return isRuleOf(m, protocol, func(chain string) bool { return slices.Contains(chains, chain) })
	})
}

// ticks ticks after each transaction with a message that matters, once the transaction is in force.
func ticks(ctx context.Context, ns *netns.NS, matters func(netlink.Message) bool) (<-chan struct{}, error) {
	conn, err := netfilter.Dial(&netlink.Config{NetNS: ns.Fd()})
	if err != nil {
		return nil, fmt.Errorf("%s: open nftables: %w", ns.Name(), err)
	}
	err = conn.SetReadBuffer(eventBuffer)
	if err == nil {
		err = conn.JoinGroups([]netfilter.NetlinkGroup{netfilter.GroupNFTables})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: listen for ruleset changes: %w", ns.Name(), err), conn.Close())
	}
	ticks := make(chan struct{}, 1)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	go func() {
		defer close(ticks)
		defer stop()
		for {
			messages, err := conn.Receive()
			switch {
			case ctx.Err() != nil:
				return
			case errors.Is(err, unix.ENOBUFS): // events were lost, and one of them may have mattered
			case err != nil:
				_ = conn.Close()
				return
			case !slices.ContainsFunc(messages, matters):
				continue
			}
			select {
			case ticks <- struct{}{}:
			default:
			}
		}
	}()
	return ticks, nil
}

// isNewGeneration reports whether m is NFT_MSG_NEWGEN, the last message of every transaction.
func isNewGeneration(m netlink.Message) bool { return m.Header.Type == nftMessage(unix.NFT_MSG_NEWGEN) }

// isRuleOf reports whether m adds or deletes a rule of a chain that matches.
func isRuleOf(m netlink.Message, protocol uint8, chain func(string) bool) bool {
	if t := m.Header.Type; t != nftMessage(unix.NFT_MSG_NEWRULE) && t != nftMessage(unix.NFT_MSG_DELRULE) {
		return false
	}
	if len(m.Data) < nfgenmsgSize || m.Data[0] != protocol {
		return false
	}
	attributes, err := netlink.NewAttributeDecoder(m.Data[nfgenmsgSize:])
	for err == nil && attributes.Next() {
		if attributes.Type() == unix.NFTA_RULE_CHAIN {
			return chain(attributes.String())
		}
	}
	return false
}

func nftMessage(number int) netlink.HeaderType {
	return netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | number)
}

// RulesetGeneration returns a number that every transaction on the nftables ruleset changes, iptables-nft included
// (NFT_MSG_GETGEN in linux/netfilter/nf_tables.h).
func RulesetGeneration(ns *netns.NS) (number uint32, err error) {
	s, err := openNfnetlink(ns)
	if err != nil {
		return 0, fmt.Errorf("%s: open nftables: %w", ns.Name(), err)
	}
	defer func() { err = errors.Join(err, s.close()) }()
	h := netlink.Header{Type: nftMessage(unix.NFT_MSG_GETGEN)}
	answer, err := s.ask(h, 0, 0, func(*netlink.AttributeEncoder) {})
	if err != nil {
		return 0, fmt.Errorf("%s: ask for the generation of the ruleset: %w", ns.Name(), err)
	}
	attributes, err := netlink.NewAttributeDecoder(answer.Data[min(nfgenmsgSize, len(answer.Data)):])
	if err != nil {
		return 0, fmt.Errorf("%s: generation of the ruleset: %w", ns.Name(), err)
	}
	attributes.ByteOrder = binary.BigEndian
	for attributes.Next() {
		if attributes.Type() == unix.NFTA_GEN_ID {
			return attributes.Uint32(), attributes.Err()
		}
	}
	return 0, fmt.Errorf("%s: the kernel does not tell the generation of the ruleset", ns.Name())
}
