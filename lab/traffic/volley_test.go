// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"net/netip"
	"testing"

	. "github.com/viplab/viplab/internal/lab/nstest"
	"github.com/viplab/viplab/lab/netns"
)

// One volley has everything that can come of a shot, in both families. Ports stand for what the router does.
func TestVolley(t *testing.T) {
	const open, dropped, refused, prohibited, elsewhere, closed = 80, 81, 82, 83, 84, 85
	w := newWorld(t)
	for _, f := range families {
		NFT(t, w.router, fmt.Sprintf(`
			table inet volley {
				chain nat {
					type nat hook prerouting priority -100;
					%[1]s daddr %[2]s meta l4proto { tcp, udp } th dport 84 dnat %[1]s to %[3]s
				}
				chain filter {
					type filter hook forward priority 0;
					meta l4proto { tcp, udp } th dport 81 drop
					tcp dport 82 reject with tcp reset
					udp dport 82 reject with icmpx port-unreachable
					meta l4proto { tcp, udp } th dport 83 reject with icmpx admin-prohibited
				}
			}`, f.nft, f.server, f.alias))
	}
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			v, err := NewVolley([]Target{
				{NS: w.server, Addrs: []netip.Addr{f.server}, Ports: portsOf(open, dropped, refused, prohibited)},
				{NS: w.server, Addrs: []netip.Addr{f.alias}, Ports: portsOf(open, elsewhere)},
				{NS: w.client, Addrs: []netip.Addr{f.client}, Ports: portsOf(open)},
			}, w.client, []netip.Addr{f.gateway, f.server})
			Must(t, err)
			defer func() { Must(t, v.Close()) }()
			for range 3 { // what a volley leaves behind is not in the way of the next one
				checkVolley(t, v, w.client, []wantHit{
					{f.server, open, Reply, 0}, {f.server, dropped, Silence, 0}, {f.server, refused, Refused, 0},
					{f.server, prohibited, Unreachable, 0}, {f.server, elsewhere, Reply, 1}, {f.server, closed, Refused, 0},
					{f.alias, open, Reply, 1}, {f.client, open, Reply, 2},
				})
			}
			if resets := counter(t, w.client, "Tcp", "OutRsts"); resets != 0 {
				t.Errorf("the client has sent %d RST, want none: what is over ends without a packet", resets)
			}
		})
	}
}

func portsOf(numbers ...uint16) []Port {
	var out []Port
	for _, n := range numbers {
		out = append(out, Port{"tcp", n}, Port{"udp", n})
	}
	return out
}

type wantHit struct {
	to      netip.Addr
	port    uint16
	outcome Outcome
	by      int
}

func checkVolley(t *testing.T, v *Volley, from *netns.NS, wants []wantHit) {
	t.Helper()
	for _, proto := range []string{"tcp", "udp"} {
		var shots []Shot
		for _, want := range wants {
			shots = append(shots, Shot{From: from, To: netip.AddrPortFrom(want.to, want.port), Proto: proto})
		}
		hits, err := v.Fire(Within(t), shots)
		Must(t, err)
		for i, hit := range hits {
			outcome := wants[i].outcome
			if hit.Outcome != outcome || hit.Target != wants[i].by || hit.Port < firstPort {
				t.Errorf("%s to %s: %s by %d from port %d, want %s by %d", proto, shots[i].To, hit.Outcome, hit.Target, hit.Port,
					outcome, wants[i].by)
			}
		}
	}
}
