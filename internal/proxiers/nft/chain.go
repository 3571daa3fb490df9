// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"github.com/ti-mo/netfilter"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/proxiers/nodeaddr"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
)

// HasChain reports whether a table of a family has a chain. It asks the kernel for that chain alone.
func HasChain(ns *netns.NS, f lab.Family, table, chain string) (bool, error) {
	conn, err := netfilter.Dial(&netlink.Config{NetNS: ns.Fd()})
	if err != nil {
		return false, fmt.Errorf("%s: open netfilter: %w", ns.Name(), err)
	}
	defer conn.Close()
	request, err := netfilter.MarshalNetlink(netfilter.Header{
		SubsystemID: netfilter.NFSubsysNFTables, MessageType: unix.NFT_MSG_GETCHAIN,
		Family: netfilter.ProtoFamily(nodeaddr.Domain(f)), Flags: netlink.Request | netlink.Acknowledge,
	}, []netfilter.Attribute{
		{Type: unix.NFTA_CHAIN_TABLE, Data: append([]byte(table), 0)},
		{Type: unix.NFTA_CHAIN_NAME, Data: append([]byte(chain), 0)},
	})
	if err == nil {
		_, err = conn.Query(request)
	}
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s: get chain %s of table %s: %w", ns.Name(), chain, table, err)
	}
	return true, nil
}
