// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"testing"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/proxiers"
)

// BenchmarkTable measures one table after another: 324 probes of pods that nothing isolates, and of such that are
// isolated.
func BenchmarkTable(b *testing.B) {
	cases, err := Static()
	if err != nil {
		b.Fatal(err)
	}
	for _, e := range proxiers.Enforcers() {
		bench, err := NewBench(b.Context(), e, Options{Stack: lab.IPv4, PodNetwork: lab.Routed,
			Overlay: lab.VXLAN})
		if err != nil {
			b.Fatal(err)
		}
		for _, c := range cases {
			if c.ID != "BASE-01" && c.ID != "STK-15" {
				continue
			}
			if err := bench.apply(b.Context(), c.Policies, nil); err != nil {
				b.Fatal(err)
			}
			b.Run(e.Name()+"/"+c.ID, func(b *testing.B) {
				for b.Loop() {
					if _, err := bench.probe(b.Context(), lab.V4, Direct); err != nil {
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
