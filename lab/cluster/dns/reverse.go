// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/viplab/viplab/lab/cluster/store"
)

// ReverseName returns the name at which an address has its PTR records (RFC 1035 3.5, RFC 3596 2.5), without a dot at
// the end.
func ReverseName(a netip.Addr) string {
	var labels []string
	for _, b := range a.AsSlice() {
		if a.Is4() {
			labels = append(labels, strconv.Itoa(int(b)))
		} else {
			labels = append(labels, strconv.FormatUint(uint64(b>>4), 16), strconv.FormatUint(uint64(b&15), 16))
		}
	}
	slices.Reverse(labels)
	zone := ipv6Zone
	if a.Is4() {
		zone = ipv4Zone
	}
	return strings.Join(labels, ".") + "." + zone
}

const (
	ipv4Zone = "in-addr.arpa"
	ipv6Zone = "ip6.arpa"
)

// reverse returns the names of an address: of Services with that ClusterIP, and of endpoints of headless Services.
func reverse(snapshot *store.Snapshot, q dnsmessage.Question, name string) answer {
	var out answer
	add := func(s service, addr string, host string) {
		if a, err := netip.ParseAddr(addr); err == nil && ReverseName(a) == name {
			out.records = append(out.records, resource(q.Name, &dnsmessage.PTRResource{PTR: s.name(host)}))
		}
	}
	for _, svc := range snapshot.Services {
		s := service{svc, snapshot, q}
		for _, ip := range svc.Spec.ClusterIPs {
			add(s, ip, "")
		}
		if s.headless() {
			for _, e := range s.endpoints() {
				add(s, e.addr.String(), e.host)
			}
		}
	}
	switch {
	case len(out.records) == 0:
		return noSuchName
	case q.Type != dnsmessage.TypePTR:
		return answer{}
	}
	return out
}
