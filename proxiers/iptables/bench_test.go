// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"testing"

	"github.com/viplab/viplab/internal/proxiers/proxiertest"
)

func BenchmarkFirst(b *testing.B)    { eachSync(b, proxiertest.Sync.First) }
func BenchmarkEndpoint(b *testing.B) { eachSync(b, proxiertest.Sync.Endpoint) }
func BenchmarkService(b *testing.B)  { eachSync(b, proxiertest.Sync.Service) }

func eachSync(b *testing.B, run func(proxiertest.Sync, *testing.B)) {
	for _, backend := range backends {
		b.Run(string(backend), func(b *testing.B) {
			run(proxiertest.Sync{Proxier: New(backend),
				Sizes: []int{100, 1000, 5000}}, b)
		})
	}
}
