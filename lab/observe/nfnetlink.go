// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"encoding/binary"
	"os"
	"slices"
	"sync"

	"github.com/mdlayher/netlink"
	"github.com/ti-mo/conntrack"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// nfnetlink is a socket for requests to netfilter that one message answers. The netlink libraries wait for the end of a
// list where conntrack's answer to a single look-up is marked as part of one (NLM_F_MULTI in ctnetlink_fill_info).
type nfnetlink struct {
	mu     sync.Mutex
	fd     int
	buffer [64 << 10]byte
}

// nfgenmsgSize is the size of struct nfgenmsg: protocol family, version, number of the resource.
const nfgenmsgSize = 4

func openNfnetlink(ns *netns.NS) (*nfnetlink, error) {
	fd, err := ns.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	return &nfnetlink{fd: fd}, nil
}

func (s *nfnetlink) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return os.NewSyscallError("close", unix.Close(s.fd))
}

// ask sends a request and returns the answer, which begins with a struct nfgenmsg, or the kernel's refusal as an errno.
func (s *nfnetlink) ask(h netlink.Header, family byte, resource uint16,
	attributes func(*netlink.AttributeEncoder)) (netlink.Message, error) {
	e := netlink.NewAttributeEncoder()
	e.ByteOrder = binary.BigEndian
	attributes(e)
	encoded, err := e.Encode()
	if err != nil {
		return netlink.Message{}, err
	}
	data := binary.BigEndian.AppendUint16([]byte{family, unix.NFNETLINK_V0}, resource)
	m := netlink.Message{Header: h, Data: append(data, encoded...)}
	m.Header.Flags |= netlink.Request
	m.Header.Length = uint32(unix.NLMSG_HDRLEN + len(m.Data))
	request, err := m.MarshalBinary()
	if err != nil {
		return netlink.Message{}, err
	}
	return s.exchange(request)
}

func (s *nfnetlink) exchange(request []byte) (answer netlink.Message, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := unix.Sendto(s.fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return answer, os.NewSyscallError("sendto", err)
	}
	n, _, err := unix.Recvfrom(s.fd, s.buffer[:], 0) // the kernel has answered before sendto returned
	if err != nil {
		return answer, os.NewSyscallError("recvfrom", err)
	}
	if err := answer.UnmarshalBinary(slices.Clone(s.buffer[:n])); err != nil {
		return answer, err
	}
	if answer.Header.Type == netlink.Error && len(answer.Data) >= 4 { // struct nlmsgerr
		if code := int32(binary.NativeEndian.Uint32(answer.Data)); code != 0 {
			return answer, unix.Errno(-code)
		}
	}
	return answer, nil
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
