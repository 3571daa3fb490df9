// SPDX-License-Identifier: Apache-2.0

package ipset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/proxiers/nodeaddr"
)

// The protocol of linux/netfilter/ipset/ip_set.h, as far as it is used.
const (
	protocolVersion = 6

	cmdCreate  = 2
	cmdDestroy = 3
	cmdFlush   = 4
	cmdSwap    = 6
	cmdList    = 7
	cmdAdd     = 9
	cmdDel     = 10
	cmdHeader  = 12

	attrProtocol = 1
	attrName     = 2
	attrType     = 3
	attrOther    = 3 // the other set of a swap
	attrRevision = 4
	attrFamily   = 5
	attrFlags    = 6
	attrData     = 7 // of a set, or of one entry
	attrEntries  = 8
	attrLine     = 9

	// Inside of attrData.
	attrIP         = 1
	attrCIDR       = 3
	attrPort       = 4
	attrPortTo     = 5
	attrTimeout    = 6
	attrProto      = 7
	attrEntryFlags = 8
	attrBuckets    = 18
	attrMaxEntries = 19
	attrIP2        = 20
	attrCIDR2      = 21

	flagNamesOnly   = 1 << 1 // of a listing
	flagHeadersOnly = 1 << 2 // of a listing
	flagNoMatch     = 1 << 2 // of an entry

	attrIPv4 = 1
	attrIPv6 = 2

	bigEndian = 1 << 14 // NLA_F_NET_BYTEORDER
)

// errBusy is IPSET_ERR_BUSY.
const errBusy = syscall.Errno(4100)

// reasons explains the kernel's own error numbers. Those of a type start at 4352.
var reasons = map[syscall.Errno]string{
	4097: "protocol error", 4098: "no such type of set, or not in this revision", 4099: "too many sets",
	4100: "a rule uses it",
	4102: "its type differs", 4103: "entry exists, or does not", 4105: "invalid prefix length", 4106: "invalid family",
	4108: "another set or a rule uses it", 4109: "IPv4 address expected", 4110: "IPv6 address expected",
	4352: "the set is full",
}

type encode func(*netlink.AttributeEncoder) error

// do sends a command and waits for its acknowledgement.
func (c *Conn) do(cmd uint8, flags netlink.HeaderFlags, attributes encode) error {
	_, err := c.ask(cmd, flags|netlink.Acknowledge, attributes)
	return err
}

func (c *Conn) ask(cmd uint8, flags netlink.HeaderFlags, attributes encode) ([]netlink.Message, error) {
	e := netlink.NewAttributeEncoder()
	e.Uint8(attrProtocol, protocolVersion)
	if err := attributes(e); err != nil {
		return nil, err
	}
	body, err := e.Encode()
	if err != nil {
		return nil, err
	}
	const generic = 4 // the size of struct nfgenmsg
	answer, err := c.conn.Execute(netlink.Message{
		Header: netlink.Header{
			Type:  netlink.HeaderType(unix.NFNL_SUBSYS_IPSET<<8 | int(cmd)),
			Flags: netlink.Request | flags,
		},
		Data: append(make([]byte, generic), body...),
	})
	if errno := syscall.Errno(0); errors.As(err, &errno) && reasons[errno] != "" {
		err = fmt.Errorf("%s (%w)", reasons[errno], errno)
	}
	for i := range answer {
		if len(answer[i].Data) >= generic {
			answer[i].Data = answer[i].Data[generic:]
		}
	}
	return answer, err
}

func nameAttribute(s Set) encode {
	return func(e *netlink.AttributeEncoder) error {
		e.String(attrName, s.Name)
		return nil
	}
}

func createAttributes(s Set) encode {
	return func(e *netlink.AttributeEncoder) error {
		e.String(attrName, s.Name)
		e.String(attrType, string(s.Type))
		e.Uint8(attrRevision, s.Type.revision())
		e.Uint8(attrFamily, s.family())
		e.Nested(attrData, func(e *netlink.AttributeEncoder) error {
			e.ByteOrder = binary.BigEndian
			if s.Type == Port {
				e.Uint16(attrPort|bigEndian, 0)
				e.Uint16(attrPortTo|bigEndian, 65535)
			} else {
				e.Uint32(attrMaxEntries|bigEndian, maxEntries)
			}
			if s.Buckets > 0 {
				e.Uint32(attrBuckets|bigEndian, uint32(s.Buckets))
			}
			encodeTimeout(e, s.Timeout)
			return nil
		})
		return nil
	}
}

// family returns the kernel's number of the set's family.
func (s Set) family() uint8 {
	if s.Type == Port {
		return unix.AF_UNSPEC
	}
	return uint8(nodeaddr.Domain(s.Family))
}

func entryAttributes(s Set, entries []Entry) encode {
	return func(e *netlink.AttributeEncoder) error {
		e.String(attrName, s.Name)
		e.Uint32(attrLine, 0) // required with several entries
		e.Nested(attrEntries, func(e *netlink.AttributeEncoder) error {
			for _, entry := range entries {
				e.Nested(attrData, func(e *netlink.AttributeEncoder) error {
					encodeEntry(e, s.Type, entry)
					return nil
				})
			}
			return nil
		})
		return nil
	}
}

// encodeTimeout leaves out a timeout of zero, which the kernel would take for "never".
func encodeTimeout(e *netlink.AttributeEncoder, timeout time.Duration) {
	if timeout > 0 {
		e.Uint32(attrTimeout|bigEndian, uint32(timeout/time.Second))
	}
}

func encodeEntry(e *netlink.AttributeEncoder, t Type, entry Entry) {
	e.ByteOrder = binary.BigEndian
	encodeTimeout(e, entry.Timeout)
	if t == Net {
		encodeAddr(e, attrIP, entry.Range.Addr())
		e.Uint8(attrCIDR, uint8(entry.Range.Bits()))
		if entry.NoMatch {
			e.Uint32(attrEntryFlags|bigEndian, flagNoMatch)
		}
		return
	}
	if t != Port {
		encodeAddr(e, attrIP, entry.Addr)
	}
	if t != IP {
		e.Uint16(attrPort|bigEndian, entry.Port)
	}
	switch t {
	case IPPort:
		e.Uint8(attrProto, entry.Proto)
	case IPPortIP, IPPortNet:
		e.Uint8(attrProto, entry.Proto)
		encodeAddr(e, attrIP2, entry.Source.Addr())
	}
	if t == IPPortNet {
		e.Uint8(attrCIDR2, uint8(entry.Source.Bits()))
	}
}

func encodeAddr(e *netlink.AttributeEncoder, attribute uint16, a netip.Addr) {
	e.Nested(attribute, func(e *netlink.AttributeEncoder) error {
		kind := uint16(attrIPv4)
		if a.Is6() {
			kind = attrIPv6
		}
		e.Bytes(kind|bigEndian, a.AsSlice())
		return nil
	})
}

// header is the type and family of a set.
type header struct {
	typ    Type
	family uint8
}

func (c *Conn) header(name string) (h header, err error) {
	err = c.list(cmdHeader, 0, nameAttribute(Set{Name: name}), func(d *netlink.AttributeDecoder) {
		switch d.Type() {
		case attrType:
			h.typ = Type(d.String())
		case attrFamily:
			h.family = d.Uint8()
		}
	})
	return h, err
}

// list sends a request, and calls take for each attribute of the answers.
func (c *Conn) list(cmd uint8, flags netlink.HeaderFlags, request encode, take func(*netlink.AttributeDecoder)) error {
	messages, err := c.ask(cmd, flags, request)
	if err != nil {
		return err
	}
	for _, m := range messages {
		d, err := netlink.NewAttributeDecoder(m.Data)
		if err != nil {
			return err
		}
		for d.Next() {
			take(d)
		}
		if err := d.Err(); err != nil {
			return err
		}
	}
	return nil
}

func decodeEntries(d *netlink.AttributeDecoder) (all []Entry) {
	d.Nested(func(d *netlink.AttributeDecoder) error {
		for d.Next() {
			var entry Entry
			d.Nested(func(d *netlink.AttributeDecoder) error { return decodeEntry(d, &entry) })
			all = append(all, entry)
		}
		return nil
	})
	return all
}

func decodeEntry(d *netlink.AttributeDecoder, entry *Entry) error {
	d.ByteOrder = binary.BigEndian
	var source netip.Addr
	bits, cidr := -1, -1
	for d.Next() {
		switch d.Type() {
		case attrIP:
			d.Nested(decodeAddr(&entry.Addr))
		case attrPort:
			entry.Port = d.Uint16()
		case attrProto:
			entry.Proto = d.Uint8()
		case attrIP2:
			d.Nested(decodeAddr(&source))
		case attrCIDR2:
			bits = int(d.Uint8())
		case attrCIDR:
			cidr = int(d.Uint8())
		case attrTimeout:
			entry.Timeout = time.Duration(d.Uint32()) * time.Second
		case attrEntryFlags:
			entry.NoMatch = d.Uint32()&flagNoMatch != 0
		}
	}
	if cidr >= 0 {
		entry.Range, entry.Addr = netip.PrefixFrom(entry.Addr, cidr), netip.Addr{}
	}
	if source.IsValid() {
		if bits < 0 {
			bits = source.BitLen()
		}
		entry.Source = netip.PrefixFrom(source, bits)
	}
	return nil
}

// decodeTimeout returns the timeout of a set, zero if its entries stay.
func decodeTimeout(d *netlink.AttributeDecoder) time.Duration {
	d.ByteOrder = binary.BigEndian
	for d.Next() {
		if d.Type() == attrTimeout {
			return time.Duration(d.Uint32()) * time.Second
		}
	}
	return 0
}

func decodeAddr(to *netip.Addr) func(*netlink.AttributeDecoder) error {
	return func(d *netlink.AttributeDecoder) error {
		for d.Next() {
			if a, ok := netip.AddrFromSlice(d.Bytes()); ok {
				*to = a
			}
		}
		return nil
	}
}
