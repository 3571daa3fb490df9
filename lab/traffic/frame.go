// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// SendFrame sends an IP packet, header included, out of a device of a namespace to a neighbour's hardware address. It
// bypasses routing and all netfilter hooks.
func SendFrame(ns *netns.NS, device int, to net.HardwareAddr, packet []byte) error {
	proto := uint16(unix.ETH_P_IP)
	if len(packet) > 0 && packet[0]>>4 == 6 {
		proto = unix.ETH_P_IPV6
	}
	at := &unix.SockaddrLinklayer{Ifindex: device, Protocol: binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil,
		proto))}
	at.Halen = uint8(copy(at.Addr[:], to))
	fd, err := ns.Socket(unix.AF_PACKET, unix.SOCK_DGRAM, 0) // protocol 0: it receives nothing
	if err != nil {
		return fmt.Errorf("send frame: %w", err)
	}
	if err := errors.Join(unix.Sendto(fd, packet, 0, at), unix.Close(fd)); err != nil {
		return fmt.Errorf("%s: send frame to %s: %w", ns.Name(), to, err)
	}
	return nil
}
