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
	_, err := query(ns, f, unix.NFT_MSG_GETCHAIN, netlink.Acknowledge,
		netfilter.Attribute{Type: unix.NFTA_CHAIN_TABLE, Data: append([]byte(table), 0)},
		netfilter.Attribute{Type: unix.NFTA_CHAIN_NAME, Data: append([]byte(chain), 0)})
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s: get chain %s of table %s: %w", ns.Name(), chain, table, err)
	}
	return true, nil
}

// Tables returns the names of the tables of a family.
func Tables(ns *netns.NS, f lab.Family) ([]string, error) {
	replies, err := query(ns, f, unix.NFT_MSG_GETTABLE, netlink.Dump)
	if err != nil {
		return nil, fmt.Errorf("%s: list tables: %w", ns.Name(), err)
	}
	var names []string
	for _, r := range replies {
		_, attributes, err := netfilter.UnmarshalNetlink(r)
		if err != nil {
			return nil, fmt.Errorf("%s: list tables: %w", ns.Name(), err)
		}
		for _, a := range attributes {
			if a.Type == unix.NFTA_TABLE_NAME {
				names = append(names, unix.ByteSliceToString(a.Data))
			}
		}
	}
	return names, nil
}

// query asks nf_tables in a namespace.
func query(ns *netns.NS, f lab.Family, message netfilter.MessageType, flags netlink.HeaderFlags,
	attributes ...netfilter.Attribute) ([]netlink.Message, error) {
	conn, err := netfilter.Dial(&netlink.Config{NetNS: ns.Fd()})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	request, err := netfilter.MarshalNetlink(netfilter.Header{
		SubsystemID: netfilter.NFSubsysNFTables, MessageType: message, Family: netfilter.ProtoFamily(nodeaddr.Domain(f)),
		Flags: netlink.Request | flags,
	}, attributes)
	if err != nil {
		return nil, err
	}
	return conn.Query(request)
}
