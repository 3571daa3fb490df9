// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// VXLAN returns the payload of a UDP datagram that carries an IP packet through a VXLAN (RFC 7348), addressed to the
// tunnel device of the receiving host.
func VXLAN(network uint32, to net.HardwareAddr, packet []byte) []byte {
	const valid = 0x08 // the flag that the network number is valid
	proto := uint16(layers.EthernetTypeIPv4)
	if len(packet) > 0 && packet[0]>>4 == 6 {
		proto = uint16(layers.EthernetTypeIPv6)
	}
	out := binary.BigEndian.AppendUint32([]byte{valid, 0, 0, 0}, network<<8)
	out = append(append(out, to...), 0x02, 0, 0, 0, 0, 1) // from an arbitrary local address
	return append(binary.BigEndian.AppendUint16(out, proto), packet...)
}

// IPIP returns an IPv4 packet that carries another one (RFC 2003).
func IPIP(src, dst netip.Addr, packet []byte) ([]byte, error) {
	buf := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolIPv4, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()},
		gopacket.Payload(packet))
	return buf.Bytes(), err
}
