package lab

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/viplab/viplab/lab/sandbox"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int { sandbox.Main(m); return 0 }

// grid is a topology of so many nodes n1, n2... with so many pods a1, b1... each.
func grid(nodes, pods int) Topology {
	var t Topology
	for i := 1; i <= nodes; i++ {
		n := NodeSpec{Name: fmt.Sprintf("n%d", i)}
		for j := 1; j <= pods; j++ {
			n.Pods = append(n.Pods, PodSpec{Name: fmt.Sprintf("p%d-%d", i, j)})
		}
		t.Nodes = append(t.Nodes, n)
	}
	return t
}

func TestQuick(t *testing.T) {
	for _, stack := range []Stack{IPv4, IPv6, Dual} {
		for _, network := range []PodNetwork{Bridge, Routed} {
			for _, o := range []Overlay{Direct, VXLAN} {
				top := grid(2, 2)
				top.Stack, top.PodNetwork, top.Overlay = stack, network, o
				start := time.Now()
				l, err := Build(t.Context(), top)
				if err != nil {
					t.Fatal(err)
				}
				t.Log(stack, network, o, time.Since(start))
				for _, from := range l.Pods() {
					p, err := newPinger(from.NS, 7)
					if err != nil {
						t.Fatal(err)
					}
					for _, to := range l.Pods() {
						for _, a := range to.Addrs() {
							got, err := p.ping(t.Context(), a, 1, 64)
							t.Log(from.Name(), a, got, err)
						}
					}
					for _, a := range l.Client().Addrs() {
						got, err := p.ping(t.Context(), a, 1, 64)
						t.Log(from.Name(), a, got, err)
					}
					p.close()
				}
				l.Close()
			}
		}
	}
}
