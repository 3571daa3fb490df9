// SPDX-License-Identifier: Apache-2.0

package netpol_test

import (
	"testing"

	"github.com/viplab/viplab/internal/suite/netpol"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/proxiers"
)

// BenchmarkTable measures one table after another: 324 probes of pods that nothing isolates, and of such that are
// isolated.
func BenchmarkTable(b *testing.B) {
	cases, err := netpol.Static()
	if err != nil {
		b.Fatal(err)
	}
	for _, e := range proxiers.Enforcers() {
		bench, err := netpol.NewBench(b.Context(), e, netpol.Options{Stack: lab.IPv4, PodNetwork: lab.Routed,
			Overlay: lab.VXLAN})
		if err != nil {
			b.Fatal(err)
		}
		for _, c := range cases {
			if c.ID != "BASE-01" && c.ID != "STK-15" {
				continue
			}
			if _, err := bench.Apply(b.Context(), c); err != nil {
				b.Fatal(err)
			}
			b.Run(e.Name()+"/"+c.ID, func(b *testing.B) {
				for b.Loop() {
					if _, err := bench.Probe(b.Context(), lab.V4, netpol.Direct); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		if err := bench.Close(b.Context()); err != nil {
			b.Error(err)
		}
	}
}
