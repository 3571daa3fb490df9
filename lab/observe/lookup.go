// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"github.com/mdlayher/netlink"
	"github.com/ti-mo/conntrack"
	"golang.org/x/sys/unix"
)

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

// lookup returns the entry in zone 0 with t as either direction, of a protocol with ports, or ENOENT.
func (s *nfnetlink) lookup(proto uint8, t Tuple) (*conntrack.Flow, error) {
	family, from, to := byte(unix.AF_INET), uint16(ctIPv4From), uint16(ctIPv4To)
	if t.Src.Addr().Is6() {
		family, from, to = unix.AF_INET6, ctIPv6From, ctIPv6To
	}
	answer, err := s.ask(netlink.Header{Type: ctGet}, family, 0, func(e *netlink.AttributeEncoder) {
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
	})
	if err != nil {
		return nil, err
	}
	var e conntrack.Event // an event has the same layout
	if err := e.Unmarshal(answer); err != nil {
		return nil, err
	}
	return e.Flow, nil
}
