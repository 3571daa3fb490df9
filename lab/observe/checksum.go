// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// offloads lists the commands of linux/ethtool.h that set one offload each. All of them defer work to a network card.
var offloads = []struct {
	command uint32
	name    string
}{
	// ETHTOOL_SRXCSUM, _STXCSUM, _STSO, _SGSO, _SGRO
	{0x15, "rx"}, {0x17, "tx"}, {0x1f, "tso"}, {0x24, "gso"}, {0x2c, "gro"},
}

// DisableOffloads makes a device send packets as a wire would: with all checksums, in frames no longer than the MTU.
// Programs that read or make packets need it. It skips offloads that the device does not have.
func DisableOffloads(ns *netns.NS, device string) error {
	fd, err := ns.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	for _, o := range offloads {
		if err := ethtool(fd, device, o.command, 0); err != nil && err != unix.EOPNOTSUPP {
			err = fmt.Errorf("%s: switch %s off on %s: %w", ns.Name(), o.name, device, err)
			return errors.Join(err, unix.Close(fd))
		}
	}
	return unix.Close(fd)
}

// ethtool sends a struct ethtool_value (linux/ethtool.h) in a struct ifreq.
func ethtool(fd int, device string, command, value uint32) error {
	data := &struct{ command, value uint32 }{command, value}
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // the union is 24 bytes long
	}{data: unsafe.Pointer(data)}
	if copy(request.name[:unix.IFNAMSIZ-1], device) < len(device) {
		return unix.ENODEV
	}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	runtime.KeepAlive(data)
	if errno != 0 {
		return errno
	}
	return nil
}

// VerifyChecksums checks the IPv4 header and the TCP, UDP or ICMP checksum of the packet and of those inside it. It
// skips transport checksums of fragments, and the outer one of a frame with ChecksumPending.
func (p *Packet) VerifyChecksums() error {
	v4 := p.Src.Addr().Is4()
	if v4 && sum(p.Raw[:4*(p.Raw[0]&0xf)], 0) != 0xffff {
		return fmt.Errorf("%s: wrong IPv4 header checksum", p)
	}
	if p.Inner != nil {
		if err := p.Inner.VerifyChecksums(); err != nil {
			return err
		}
	}
	if p.Fragment {
		return nil
	}
	var pseudo uint32
	switch p.proto {
	case unix.IPPROTO_TCP, unix.IPPROTO_ICMPV6:
		pseudo = p.pseudoHeader()
	case unix.IPPROTO_UDP:
		if v4 && len(p.body) >= 8 && binary.BigEndian.Uint16(p.body[6:]) == 0 {
			return nil // the sender used no checksum (RFC 768)
		}
		pseudo = p.pseudoHeader()
	case unix.IPPROTO_ICMP:
	default:
		return nil
	}
	if got := sum(p.body, pseudo); got != 0xffff {
		return fmt.Errorf("%s: wrong %s checksum (it sums up to %#04x)", p, protoName(p.proto), got)
	}
	return nil
}

// pseudoHeader returns the sum of the IP header fields that TCP, UDP and ICMPv6 include (RFC 9293 3.1, RFC 8200 8.1).
func (p *Packet) pseudoHeader() uint32 {
	addresses := append(p.Src.Addr().AsSlice(), p.Dst.Addr().AsSlice()...)
	return uint32(sum(addresses, uint32(p.proto))) + uint32(len(p.body))
}

// sum returns the one's complement sum of the 16-bit words of b, added to start (RFC 1071).
func sum(b []byte, start uint32) uint16 {
	total := uint64(start)
	for ; len(b) > 1; b = b[2:] {
		total += uint64(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		total += uint64(b[0]) << 8
	}
	for total > 0xffff {
		total = total>>16 + total&0xffff
	}
	return uint16(total)
}
