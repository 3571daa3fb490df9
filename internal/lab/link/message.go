// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

var host = binary.NativeEndian

// request is a buffer of netlink messages.
type request struct{ b []byte }

// message appends a message, whose body follows its header. The flags are added to NLM_F_REQUEST.
func (r *request) message(typ, flags uint16, body func()) {
	start := len(r.b)
	r.b = host.AppendUint32(r.b, 0)
	r.b = host.AppendUint16(r.b, typ)
	r.b = host.AppendUint16(r.b, flags|unix.NLM_F_REQUEST)
	r.b = append(r.b, 0, 0, 0, 0, 0, 0, 0, 0) // sequence number, port
	body()
	host.PutUint32(r.b[start:], uint32(len(r.b)-start)) // attributes have aligned it to four bytes
}

// number gives the messages consecutive sequence numbers.
func (r *request) number(seq uint32) {
	for at := 0; at < len(r.b); at += int(host.Uint32(r.b[at:])) {
		host.PutUint32(r.b[at+8:], seq)
		seq++
	}
}

// ifinfo appends a struct ifinfomsg.
func (r *request) ifinfo(family byte, index int, flags, change uint32) {
	r.b = append(r.b, family, 0, 0, 0)
	r.b = host.AppendUint32(r.b, uint32(index))
	r.b = host.AppendUint32(r.b, flags)
	r.b = host.AppendUint32(r.b, change)
}

// attribute appends an attribute, aligned to four bytes.
func (r *request) attribute(typ uint16, value func()) {
	start := len(r.b)
	r.b = host.AppendUint16(r.b, 0)
	r.b = host.AppendUint16(r.b, typ)
	value()
	host.PutUint16(r.b[start:], uint16(len(r.b)-start))
	for len(r.b)%4 != 0 {
		r.b = append(r.b, 0)
	}
}

// nest appends an attribute that consists of attributes.
func (r *request) nest(typ uint16, attributes func()) { r.attribute(typ|unix.NLA_F_NESTED, attributes) }

func (r *request) bytes(typ uint16, value []byte) {
	r.attribute(typ, func() { r.b = append(r.b, value...) })
}

func (r *request) text(typ uint16, value string) {
	r.attribute(typ, func() { r.b = append(append(r.b, value...), 0) })
}

func (r *request) u32(typ uint16, value uint32) {
	r.attribute(typ, func() { r.b = host.AppendUint32(r.b, value) })
}

func (r *request) u32be(typ uint16, value uint32) {
	r.attribute(typ, func() { r.b = binary.BigEndian.AppendUint32(r.b, value) })
}

func (r *request) u8(typ uint16, value byte)         { r.bytes(typ, []byte{value}) }
func (r *request) addr(typ uint16, value netip.Addr) { r.bytes(typ, value.AsSlice()) }

// header returns the struct nlmsghdr at an offset.
func (r *request) header(at int) nlmsg { return nlmsg(r.b[at:]) }

// nlmsg is a netlink message: length, type, flags, sequence number, port, body.
type nlmsg []byte

func (m nlmsg) typ() uint16       { return host.Uint16(m[4:]) }
func (m nlmsg) setType(t uint16)  { host.PutUint16(m[4:], t) }
func (m nlmsg) flags() uint16     { return host.Uint16(m[6:]) }
func (m nlmsg) setFlags(f uint16) { host.PutUint16(m[6:], f) }
func (m nlmsg) seq() uint32       { return host.Uint32(m[8:]) }

// err returns nil for an acknowledgement, else the errno, with the kernel's explanation if it has one.
func (m nlmsg) err() error {
	code := -int32(host.Uint32(m[16:]))
	if code == 0 {
		return nil
	}
	errno := unix.Errno(code)
	if m.flags()&unix.NLM_F_ACK_TLVS == 0 {
		return errno
	}
	at := 20 + 16 // error code, then the header of the refused message; NETLINK_CAP_ACK leaves the rest of it out
	if m.flags()&unix.NLM_F_CAPPED == 0 {
		at = 20 + int(host.Uint32(m[20:]))
	}
	for typ, value := range attrs(m[min(at, len(m)):]) {
		if typ == unix.NLMSGERR_ATTR_MSG {
			return fmt.Errorf("%s: %w", strings.TrimRight(string(value), "\x00."), errno)
		}
	}
	return errno
}

// attrs walks the attributes in b; nesting and byte-order flags are taken off the types.
func attrs(b []byte) func(yield func(uint16, []byte) bool) {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= 4 {
			size := int(host.Uint16(b))
			if size < 4 || size > len(b) {
				return
			}
			if !yield(host.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[4:size]) {
				return
			}
			b = b[min((size+3)&^3, len(b)):]
		}
	}
}

// eachMessage hands the messages of a datagram to f until f says it was the last.
func eachMessage(b []byte, f func(nlmsg) (last bool, err error)) (bool, error) {
	for len(b) >= unix.SizeofNlMsghdr {
		size := int(host.Uint32(b))
		if size < unix.SizeofNlMsghdr || size > len(b) {
			return false, errors.New("netlink answer is cut short")
		}
		if last, err := f(nlmsg(b[:size])); last || err != nil {
			return last, err
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return false, nil
}
