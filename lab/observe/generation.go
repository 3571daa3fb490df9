// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"github.com/ti-mo/netfilter"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// RulesetGeneration returns the generation number of a namespace's nftables ruleset, which includes iptables-nft. Each
// transaction changes it (NFT_MSG_GETGEN in linux/netfilter/nf_tables.h): while the number stays the same, no rule has
// changed.
func RulesetGeneration(ns *netns.NS) (number uint32, err error) {
	conn, err := netfilter.Dial(&netlink.Config{NetNS: ns.Fd()})
	if err != nil {
		return 0, fmt.Errorf("%s: open nftables: %w", ns.Name(), err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	answers, err := conn.Query(netlink.Message{
		Header: netlink.Header{Type: nftMessage(unix.NFT_MSG_GETGEN), Flags: netlink.Request},
		Data:   make([]byte, nfgenmsgSize),
	})
	if err != nil {
		return 0, fmt.Errorf("%s: ask for the generation of the ruleset: %w", ns.Name(), err)
	}
	for _, a := range answers {
		attributes, err := netlink.NewAttributeDecoder(a.Data[min(nfgenmsgSize, len(a.Data)):])
		if err != nil {
			return 0, fmt.Errorf("%s: generation of the ruleset: %w", ns.Name(), err)
		}
		attributes.ByteOrder = binary.BigEndian
		for attributes.Next() {
			if attributes.Type() == unix.NFTA_GEN_ID {
				return attributes.Uint32(), attributes.Err()
			}
		}
	}
	return 0, fmt.Errorf("%s: the kernel does not tell the generation of the ruleset", ns.Name())
}
