// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/viplab/viplab/lab/netns"
)

// connection is one that IPVS sends to a real server.
type connection struct {
	proto          string
	from, to, real netip.AddrPort
	state          string // such as "ESTABLISHED", "UDP" for datagrams
}

// String returns "tcp 10.0.0.1:4 -> 10.96.0.1:80 => 10.244.1.2:8080 SYN_RECV", for example.
func (c connection) String() string {
	return fmt.Sprintf("%s %s -> %s => %s %s", c.proto, c.from, c.to, c.real, c.state)
}

// connections returns the connections of IPVS in a namespace, none on kernels without it.
func connections(ns *netns.NS) ([]connection, error) {
	text, err := ns.ProcNet("ip_vs_conn")
	return parseConnections(text), err
}

// parseConnections reads /proc/net/ip_vs_conn (ip_vs_conn_seq_show in the kernel's net/netfilter/ipvs/ip_vs_conn.c). It
// leaves out lines that it does not understand.
func parseConnections(text string) (all []connection) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 8 {
			continue
		}
		c := connection{proto: strings.ToLower(words[0]), state: words[7]}
		understood := true
		for i, to := range []*netip.AddrPort{&c.from, &c.to, &c.real} {
			at, ok := parseEnd(words[1+2*i], words[2+2*i])
			*to, understood = at, understood && ok
		}
		if understood {
			all = append(all, c)
		}
	}
	return all
}

// parseEnd reads an address, of IPv4 as hexadecimal digits, and a port as such.
func parseEnd(address, port string) (netip.AddrPort, bool) {
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, false
	}
	if strings.Contains(address, ":") {
		a, err := netip.ParseAddr(strings.Trim(address, "[]"))
		return netip.AddrPortFrom(a, uint16(n)), err == nil
	}
	raw, err := hex.DecodeString(address)
	a, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(a, uint16(n)), err == nil && ok
}
