// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

func localAddr(fd int) (netip.AddrPort, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("getsockname: %w", err)
	}
	return netns.AddrPort(sa), nil
}

// anyAddr returns the wildcard address of the family of a.
func anyAddr(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

func sockType(proto string) (int, error) {
	switch proto {
	case "tcp":
		return unix.SOCK_STREAM, nil
	case "udp":
		return unix.SOCK_DGRAM, nil
	}
	return 0, fmt.Errorf("protocol %q: want tcp or udp", proto)
}
