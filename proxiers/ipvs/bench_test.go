// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"testing"

	"github.com/viplab/viplab/internal/proxiers/proxiertest"
)

var syncs = proxiertest.Sync{Proxier: New(), Sizes: []int{100, 1000, 5000}}

func BenchmarkFirst(b *testing.B)    { syncs.First(b) }
func BenchmarkEndpoint(b *testing.B) { syncs.Endpoint(b) }
func BenchmarkService(b *testing.B)  { syncs.Service(b) }
