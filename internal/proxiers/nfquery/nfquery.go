// SPDX-License-Identifier: Apache-2.0

// Package nfquery asks the kernel what nf_tables holds, without a program.
package nfquery

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

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

// Lifetimes returns the elements of a set of addresses, and how long each of them has left before it expires.
func Lifetimes(ns *netns.NS, f lab.Family, table, set string) (map[netip.Addr]time.Duration, error) {
	replies, err := query(ns, f, unix.NFT_MSG_GETSETELEM, netlink.Dump,
		netfilter.Attribute{Type: unix.NFTA_SET_ELEM_LIST_TABLE, Data: append([]byte(table), 0)},
		netfilter.Attribute{Type: unix.NFTA_SET_ELEM_LIST_SET, Data: append([]byte(set), 0)})
	if err != nil {
		return nil, fmt.Errorf("%s: list set %s of table %s: %w", ns.Name(), set, table, err)
	}
	all := map[netip.Addr]time.Duration{}
	for _, r := range replies {
		const header = 4 // of nfnetlink
		if err := eachAttribute(r.Data[header:], unix.NFTA_SET_ELEM_LIST_ELEMENTS, func(list []byte) error {
			return eachAttribute(list, unix.NFTA_LIST_ELEM, func(element []byte) error {
				var addr netip.Addr
				var left time.Duration
				err := errors.Join(
					eachAttribute(element, unix.NFTA_SET_ELEM_KEY, func(key []byte) error {
						return eachAttribute(key, unix.NFTA_DATA_VALUE, func(b []byte) error {
							addr, _ = netip.AddrFromSlice(b)
							return nil
						})
					}),
					eachAttribute(element, unix.NFTA_SET_ELEM_EXPIRATION, func(b []byte) error {
						left = time.Duration(binary.BigEndian.Uint64(b)) * time.Millisecond
						return nil
					}))
				all[addr] = left
				return err
			})
		}); err != nil {
			return nil, fmt.Errorf("%s: list set %s of table %s: %w", ns.Name(), set, table, err)
		}
	}
	return all, nil
}

// eachAttribute calls do with the data of each netlink attribute of a type.
func eachAttribute(data []byte, typ uint16, do func([]byte) error) error {
	d, err := netlink.NewAttributeDecoder(data)
	if err != nil {
		return err
	}
	for d.Next() {
		if d.Type() == typ {
			d.Do(do)
		}
	}
	return d.Err()
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
