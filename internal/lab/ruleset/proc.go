// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// parseServers reads /proc/net/ip_vs (ip_vs_info_seq_show in the kernel's net/netfilter/ipvs/ip_vs_ctl.c).
func parseServers(text string) ([]*Server, error) {
	var servers []*Server
	for i, line := range slices.Collect(strings.Lines(text)) {
		words := strings.Fields(line)
		const head = 3 // lines
		if i < head || len(words) < 3 {
			continue
		}
		var err error
		if words[0] == "->" {
			if len(words) < 6 || len(servers) == 0 {
				return nil, fmt.Errorf("/proc/net/ip_vs: %q", line)
			}
			r := RealServer{Forward: words[2]}
			if r.At, err = parseEndpoint(words[1]); err == nil {
				r.Weight, _ = strconv.Atoi(words[3]) // the kernel prints numbers
				r.Active, _ = strconv.Atoi(words[4])
				r.Inactive, _ = strconv.Atoi(words[5])
			}
			s := servers[len(servers)-1]
			s.Real = append(s.Real, r)
		} else {
			s := &Server{Proto: strings.ToLower(words[0]), Scheduler: words[2], Flags: strings.Join(words[3:], " ")}
			if s.Proto == "fwm" {
				mark, markErr := strconv.ParseUint(words[1], 16, 32)
				s.Proto, s.Mark, err = "fwmark", uint32(mark), markErr
			} else {
				s.At, err = parseEndpoint(words[1])
			}
			servers = append(servers, s)
		}
		if err != nil {
			return nil, fmt.Errorf("/proc/net/ip_vs: %q: %w", line, err)
		}
	}
	return servers, nil
}

// parseEndpoint reads "0A60000A:0050" or "[fd00:...]:0050", with the port in hexadecimal digits.
func parseEndpoint(text string) (netip.AddrPort, error) {
	i := strings.LastIndex(text, ":")
	if i < 0 {
		return netip.AddrPort{}, fmt.Errorf("%q has no port", text)
	}
	port, err := strconv.ParseUint(text[i+1:], 16, 16)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if address := strings.Trim(text[:i], "[]"); strings.Contains(address, ":") {
		a, err := netip.ParseAddr(address)
		return netip.AddrPortFrom(a, uint16(port)), err
	}
	raw, err := hex.DecodeString(text[:i])
	a, _ := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(a, uint16(port)), err
}

// The states of sockets that take packets of others, in the files of /proc/net (net/tcp_states.h): a listener, and a
// UDP socket that is not connected.
var taking = map[string]string{"tcp": "0A", "udp": "07"}

// parseSockets reads /proc/net/tcp and its like. A socket for both families is listed once for the family of the file.
func parseSockets(proto, text string) ([]*Socket, error) {
	var sockets []*Socket
	for i, line := range slices.Collect(strings.Lines(text)) {
		words := strings.Fields(line)
		if i == 0 || len(words) < 4 || words[3] != taking[proto] {
			continue
		}
		at, err := parseKernelEndpoint(words[1])
		if err != nil {
			return nil, fmt.Errorf("/proc/net/%s: %q: %w", proto, line, err)
		}
		sockets = append(sockets, &Socket{Proto: proto, At: at})
	}
	return sockets, nil
}

// parseKernelEndpoint reads "0100007F:1F90": the address as words of 32 bits in the order of the machine, little endian
// on all that Kubernetes runs on but s390x.
func parseKernelEndpoint(text string) (netip.AddrPort, error) {
	address, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(address)
	if err != nil {
		return netip.AddrPort{}, err
	}
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}
	a, ok := netip.AddrFromSlice(raw)
	number, err := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is no address with a port", text)
	}
	return netip.AddrPortFrom(a, uint16(number)), nil
}
