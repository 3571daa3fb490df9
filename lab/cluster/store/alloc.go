// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// PortRange is a range of port numbers, both ends included.
type PortRange struct{ First, Last int32 }

// Contains reports whether a port is in the range.
func (r PortRange) Contains(port int32) bool { return port >= r.First && port <= r.Last }

// String returns "first-last".
func (r PortRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

func (r PortRange) size() uint32 { return uint32(max(0, r.Last-r.First+1)) }

// Allocations depend on names, not on their order, so that labs come out alike. People choose from the low end.

// pick returns the first free number below size from a place that the name determines, those below reserved last.
func pick(name string, size, reserved uint32, free func(uint32) bool) (uint32, bool) {
	if open := size - reserved; open > 0 {
		start := hash(name) % open
		for i := range open {
			if n := reserved + (start+i)%open; free(n) {
				return n, true
			}
		}
	}
	for n := range reserved {
		if free(n) {
			return n, true
		}
	}
	return 0, false
}

// reservedOf returns how much of a range is left to people: a part of it, within bounds (KEP-3070, KEP-3668).
func reservedOf(size, part, least, most uint32) uint32 {
	return min(size, min(max(size/part, least), most))
}

// freePort picks a NodePort that no Service holds and that is not in mine, the ports just given to the one that asks.
func (s *Store) freePort(name string, mine map[int32]bool) (int32, bool) {
	size := s.nodeRange.size()
	n, ok := pick(name, size, reservedOf(size, 32, 16, 128), func(n uint32) bool {
		port := s.nodeRange.First + int32(n)
		_, taken := s.index.nodePorts[port]
		return !taken && !mine[port]
	})
	return s.nodeRange.First + int32(n), ok
}

// freeAddress picks a ClusterIP of the first range of a family that has one left.
func (s *Store) freeAddress(name string, family corev1.IPFamily) (netip.Addr, bool) {
	for _, prefix := range s.serviceRanges(family) {
		if ip, ok := s.freeAddressIn(name, prefix); ok {
			return ip, true
		}
	}
	return netip.Addr{}, false
}

// freeAddressIn picks one of the first 65534 of a range, so that those of two families usually look alike.
func (s *Store) freeAddressIn(name string, prefix netip.Prefix) (netip.Addr, bool) {
	hostBits := min(16, prefix.Addr().BitLen()-prefix.Bits())
	size := uint32(1) << hostBits
	if size > 2 {
		size -= 2 // the first address and the last, which is the broadcast address in IPv4
	}
	at := func(n uint32) netip.Addr { return addOffset(prefix.Addr(), n+1) }
	n, ok := pick(name, size, reservedOf(size, 16, 16, 256), func(n uint32) bool {
		_, taken := s.ownerOf(at(n))
		return !taken && prefix.Contains(at(n))
	})
	return at(n), ok
}

func addOffset(a netip.Addr, n uint32) netip.Addr {
	b := a.AsSlice()
	low := b[len(b)-4:]
	binary.BigEndian.PutUint32(low, binary.BigEndian.Uint32(low)+n)
	sum, _ := netip.AddrFromSlice(b)
	return sum
}

func familyOf(a netip.Addr) corev1.IPFamily {
	if a.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

func hash(name string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(name))
	return h.Sum32()
}

// suffix returns five letters for the end of a generated name: no vowels, so no words, as in Kubernetes.
func suffix(name string) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	h := fnv.New64a()
	h.Write([]byte(name))
	var out [5]byte
	for n, i := h.Sum64(), 0; i < len(out); i++ {
		out[i] = letters[n%uint64(len(letters))]
		n /= uint64(len(letters))
	}
	return string(out[:])
}
