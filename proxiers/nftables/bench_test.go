package nftables

import (
	"fmt"
	"slices"
	"testing"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/kube"
	"github.com/viplab/viplab/proxiers/internal/proxiertest"
)

// The sizes are numbers of Services with five endpoints each.
var sizes = []int{100, 1000, 10000}

func eachSize(b *testing.B, run func(b *testing.B, s *kube.Snapshot)) {
	for _, n := range sizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) { run(b, proxiertest.Cluster(n, 5)) })
	}
}

// BenchmarkFirst is the first sync of a node.
func BenchmarkFirst(b *testing.B) {
	eachSize(b, func(b *testing.B, s *kube.Snapshot) {
		for b.Loop() {
			b.StopTimer()
			in := start(b, proxiertest.Node(b, lab.V4))
			b.StartTimer()
			apply(b, in, s)
		}
	})
}

// BenchmarkRestart is the first sync of a node that holds the table of a former proxier.
func BenchmarkRestart(b *testing.B) {
	eachSize(b, func(b *testing.B, s *kube.Snapshot) {
		node := proxiertest.Node(b, lab.V4)
		apply(b, start(b, node), s)
		for b.Loop() {
			b.StopTimer()
			in := start(b, node)
			b.StartTimer()
			apply(b, in, s)
		}
	})
}

// BenchmarkEndpoint is a sync in which one endpoint comes or goes.
func BenchmarkEndpoint(b *testing.B) {
	eachSize(b, func(b *testing.B, s *kube.Snapshot) {
		other := *s
		other.EndpointSlices = slices.Clone(s.EndpointSlices)
		middle := len(s.Services) / 2
		_, other.EndpointSlices[2*middle] = proxiertest.Simple(middle, 4, lab.V4)
		alternate(b, start(b, proxiertest.Node(b, lab.V4)), s, &other)
	})
}

// BenchmarkService is a sync in which one Service comes or goes.
func BenchmarkService(b *testing.B) {
	eachSize(b, func(b *testing.B, s *kube.Snapshot) {
		other := *s
		middle := len(s.Services) / 2
		other.Services = slices.Delete(slices.Clone(s.Services), middle, middle+1)
		alternate(b, start(b, proxiertest.Node(b, lab.V4)), s, &other)
	})
}

func alternate(b *testing.B, in *instance, states ...*kube.Snapshot) {
	apply(b, in, states[0])
	for i := 1; b.Loop(); i++ {
		apply(b, in, states[i%2])
	}
}
