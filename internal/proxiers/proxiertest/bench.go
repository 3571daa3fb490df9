// SPDX-License-Identifier: Apache-2.0

package proxiertest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/suite/spec"
)

// Sync measures what a proxier's syncs cost, for one family.
type Sync struct {
	Proxier spec.Proxier
	Sizes   []int // numbers of Services, each with five endpoints; the large ones take a while: pick them with -bench
}

// First is the first sync of a node.
func (m Sync) First(b *testing.B) {
	m.eachSize(b, func(b *testing.B, s *store.Snapshot) {
		for b.Loop() {
			b.StopTimer()
			in := Start(b, m.Proxier, UpNode(b, lab.V4))
			b.StartTimer()
			Apply(b, in, s)
			b.StopTimer()
			Stop(b, in)
			b.StartTimer()
		}
	})
}

// Restart is the first sync of a node that holds what a former proxier has left.
func (m Sync) Restart(b *testing.B) {
	m.eachSize(b, func(b *testing.B, s *store.Snapshot) {
		node := UpNode(b, lab.V4)
		Apply(b, Start(b, m.Proxier, node), s)
		for b.Loop() {
			b.StopTimer()
			in := Start(b, m.Proxier, node)
			b.StartTimer()
			Apply(b, in, s)
		}
	})
}

// Endpoint is a sync in which one endpoint comes or goes.
func (m Sync) Endpoint(b *testing.B) {
	m.eachSize(b, func(b *testing.B, s *store.Snapshot) {
		other := *s
		other.EndpointSlices = slices.Clone(s.EndpointSlices)
		middle := len(s.Services) / 2
		_, other.EndpointSlices[2*middle] = Simple(middle, 4, lab.V4)
		m.alternate(b, s, &other)
	})
}

// Service is a sync in which one Service comes or goes.
func (m Sync) Service(b *testing.B) {
	m.eachSize(b, func(b *testing.B, s *store.Snapshot) {
		other := *s
		middle := len(s.Services) / 2
		other.Services = slices.Delete(slices.Clone(s.Services), middle, middle+1)
		m.alternate(b, s, &other)
	})
}

func (m Sync) eachSize(b *testing.B, run func(*testing.B, *store.Snapshot)) {
	for _, n := range m.Sizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) { run(b, Cluster(n, 5)) })
	}
}

func (m Sync) alternate(b *testing.B, states ...*store.Snapshot) {
	in := Start(b, m.Proxier, UpNode(b, lab.V4))
	Apply(b, in, states[0])
	for i := 1; b.Loop(); i++ {
		Apply(b, in, states[i%2])
	}
	Stop(b, in)
}
