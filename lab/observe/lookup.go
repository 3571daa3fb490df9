// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/mdlayher/netlink"
	"github.com/ti-mo/conntrack"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// lookup reads single conntrack entries of a namespace. The library cannot: the kernel marks the one message of its
// answer as part of a list (NLM_F_MULTI in ctnetlink_fill_info), and the library waits for the end of that list.
type lookup struct {
	mu     sync.Mutex
	fd     int
	buffer [8 << 10]byte // for an answer of some hundred bytes
}

func newLookup(ns *netns.NS) (*lookup, error) {
	fd, err := ns.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	return &lookup{fd: fd}, nil
}

func (l *lookup) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return os.NewSyscallError("close", unix.Close(l.fd))
}

// get finds the entry in zone 0 that has t as either direction, of a protocol with ports. It returns ENOENT if there is
// none.
func (l *lookup) get(proto uint8, t Tuple) (*conntrack.Flow, error) {
	request, err := request(proto, t)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := unix.Sendto(l.fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, os.NewSyscallError("sendto", err)
	}
	n, _, err := unix.Recvfrom(l.fd, l.buffer[:], 0) // the kernel has answered before sendto returned
	if err != nil {
		return nil, os.NewSyscallError("recvfrom", err)
	}
	var answer netlink.Message
	if err := answer.UnmarshalBinary(slices.Clone(l.buffer[:n])); err != nil {
		return nil, err
	}
	if answer.Header.Type == netlink.Error && len(answer.Data) >= 4 {
		return nil, unix.Errno(-int32(binary.NativeEndian.Uint32(answer.Data))) // struct nlmsgerr
	}
	var e conntrack.Event // an event has the same layout
	if err := e.Unmarshal(answer); err != nil {
		return nil, err
	}
	return e.Flow, nil
}

// Messages and attributes of linux/netfilter/nfnetlink_conntrack.h.
const (
	ctGet = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1

	ctTupleOrig             = 1
	ctTupleIP, ctTupleProto = 1, 2
	ctIPv4From, ctIPv4To    = 1, 2
	ctIPv6From, ctIPv6To    = 3, 4
	ctProtoNumber           = 1
	ctPortFrom, ctPortTo    = 2, 3
)

// request returns the request for an entry.
func request(proto uint8, t Tuple) ([]byte, error) {
	family, from, to := byte(unix.AF_INET), uint16(ctIPv4From), uint16(ctIPv4To)
	if t.Src.Addr().Is6() {
		family, from, to = unix.AF_INET6, ctIPv6From, ctIPv6To
	}
	e := netlink.NewAttributeEncoder()
	e.ByteOrder = binary.BigEndian
	e.Nested(ctTupleOrig, func(e *netlink.AttributeEncoder) error {
		e.Nested(ctTupleIP, func(e *netlink.AttributeEncoder) error {
			e.Bytes(from, t.Src.Addr().AsSlice())
			e.Bytes(to, t.Dst.Addr().AsSlice())
			return nil
		})
		e.Nested(ctTupleProto, func(e *netlink.AttributeEncoder) error {
			e.Uint8(ctProtoNumber, proto)
			e.Uint16(ctPortFrom, t.Src.Port())
			e.Uint16(ctPortTo, t.Dst.Port())
			return nil
		})
		return nil
	})
	attributes, err := e.Encode()
	if err != nil {
		return nil, fmt.Errorf("encode a tuple: %w", err)
	}
	m := netlink.Message{
		Header: netlink.Header{Type: ctGet, Flags: netlink.Request},
		Data:   append([]byte{family, unix.NFNETLINK_V0, 0, 0}, attributes...), // struct nfgenmsg
	}
	m.Header.Length = uint32(unix.NLMSG_HDRLEN + len(m.Data))
	return m.MarshalBinary()
}
