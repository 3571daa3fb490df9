// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"net/netip"
	"testing"

	. "github.com/viplab/viplab/internal/lab/nstest"
)

// BenchmarkProbe measures one probe after another, and as many at a time as there are CPUs.
func BenchmarkProbe(b *testing.B) {
	w := newWorld(b)
	f := families[0]
	serve(b, w.server, "web", []netip.Addr{f.server}, bothPorts...)
	NFT(b, w.router, `
		table inet filter {
			chain forward {
				type filter hook forward priority 0;
				meta l4proto { tcp, udp } th dport 81 drop
			}
		}`)
	for _, c := range []struct {
		name, proto string
		port        uint16
		want        Outcome
	}{
		{"tcp allowed", "tcp", 80, Reply},
		{"udp allowed", "udp", 80, Reply},
		{"tcp denied", "tcp", 81, Silence},
		{"udp denied", "udp", 81, Silence},
	} {
		p := Probe{From: w.client, To: netip.AddrPortFrom(f.server, c.port), Proto: c.proto, Fences: []netip.Addr{f.gateway}}
		do := func() {
			if a := p.Do(context.Background()); a.Outcome != c.want {
				b.Error(a)
			}
		}
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				do()
			}
		})
		b.Run(c.name+"/parallel", func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					do()
				}
			})
		})
	}
}
