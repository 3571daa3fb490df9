// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestBadTopologies(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 64)
	for _, row := range []struct {
		what     string
		topology Topology
		want     []string
	}{
		{"nothing", Topology{}, []string{"no nodes: a lab has at least one"}},
		{"unknown words", Topology{Stack: 3, PodNetwork: 2, Overlay: 4, Nodes: grid(1, 1).Nodes}, []string{
			"unknown IP stack 3: want 4, 6, dual",
			"unknown pod network 2: want bridge, routed",
			"unknown overlay 4: want auto, ipip, vxlan, direct",
		}},
		{"names", Topology{Nodes: []NodeSpec{
			{},
			{Name: "N1"},
			{Name: "-n", Pods: []PodSpec{{}, {Name: "a/b/c"}, {Name: "shop/web-1"}, {Name: "shop/web-1"}}},
			{Name: long},
			{Name: "router"},
			{Name: "n"},
			{Name: "n", Pods: []PodSpec{{Name: "n"}}},
		}}, []string{
			"node 1: no name",
			`node 2: node N1: bad name: want lower case letters, digits and dashes`,
			`node 3: node -n: bad name: want lower case letters, digits and dashes`,
			`node 3: pod 1: no name`,
			`node 3: pod a/b/c: bad name: want lower case letters, digits and dashes`,
			`node 3: pod shop/web-1: name is taken`,
			`node 4: node ` + long + `: bad name: want lower case letters, digits and dashes`,
			`node 5: node router: name is taken`,
			`node 7: node n: name is taken`,
			`node 7: pod n: name is taken`,
		}},
		{"too many nodes", grid(91, 0), []string{"91 nodes: the LAN has addresses for 90"}},
		{"too many pods", grid(1, 253), []string{"node 1: n1: 253 pods: a node has addresses for 252"}},
	} {
		t.Run(row.what, func(t *testing.T) {
			l, err := Build(t.Context(), row.topology)
			if err == nil {
				l.Close()
				t.Fatal("it was built")
			}
			got := strings.Split(strings.TrimPrefix(err.Error(), "topology: "), "\n")
			if !slices.Equal(got, row.want) {
				t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(row.want, "\n"))
			}
		})
	}
}

func TestWords(t *testing.T) {
	for _, s := range []Stack{IPv4, IPv6, Dual} {
		if got, err := ParseStack(s.String()); got != s || err != nil {
			t.Errorf("ParseStack(%q) = %v, %v", s, got, err)
		}
	}
	for _, p := range []PodNetwork{Bridge, Routed} {
		if got, err := ParsePodNetwork(p.String()); got != p || err != nil {
			t.Errorf("ParsePodNetwork(%q) = %v, %v", p, got, err)
		}
	}
	for _, o := range []Overlay{Auto, IPIP, VXLAN, Direct} {
		if got, err := ParseOverlay(o.String()); got != o || err != nil {
			t.Errorf("ParseOverlay(%q) = %v, %v", o, got, err)
		}
	}
	if _, err := ParseOverlay("geneve"); err == nil ||
		err.Error() != `unknown overlay "geneve": want auto, ipip, vxlan, direct` {
		t.Errorf("ParseOverlay(geneve): %v", err)
	}
	if got, want := Overlay(9).String(), "unknown (9)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The choice is the best that the kernel has, and an overlay that was asked for by name is never replaced by another.
func TestChosenOverlay(t *testing.T) {
	for _, stack := range []Stack{IPv4, IPv6, Dual} {
		have := map[Overlay]bool{Direct: true}
		for _, o := range []Overlay{IPIP, VXLAN} {
			got, _, err := chooseOverlay(o, stack)
			have[o] = err == nil
			if prefix := fmt.Sprintf("overlay %s: this kernel cannot do it: ", o); err != nil &&
				!strings.HasPrefix(err.Error(), prefix) {
				t.Errorf("%s: error %q does not begin with %q", stack, err, prefix)
			}
			if got.kind() != o {
				t.Errorf("%s: asked for %s, got %s", stack, o, got.kind())
			}
		}
		want := Direct
		for _, o := range []Overlay{VXLAN, IPIP} {
			if have[o] {
				want = o
			}
		}
		got, reason, err := chooseOverlay(Auto, stack)
		if err != nil || got.kind() != want || reason == "" {
			t.Errorf("%s: chose %s because %q, %v; want %s", stack, got.kind(), reason, err, want)
		}
	}
}

func TestBuildHonoursItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if l, err := Build(ctx, grid(2, 2)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, %v; want %v", l, err, context.Canceled)
	}
}

func TestPlan(t *testing.T) {
	for _, row := range []struct{ got, want any }{
		{lanAddr(V4, 11), "192.168.7.11"},
		{lanAddr(V6, 11), "fd00:7::11"},
		{lanAddr(V6, 211), "fd00:7::211"},
		{podCIDR(V4, 90), "10.244.90.0/24"},
		{podCIDR(V6, 90), "fd00:10:244:90::/64"},
		{podAddr(V4, 3, 254), "10.244.3.254"},
		{podAddr(V6, 3, 254), "fd00:10:244:3::254"},
		{clusterCIDR(V6), "fd00:10:244::/48"},
		{podMAC(3, 254), "0a:58:0a:f4:03:fe"},
		{routedMAC.LinkLocal(), "fe80::ecee:eeff:feee:eeee"},
	} {
		if got := fmt.Sprint(row.got); got != row.want {
			t.Errorf("got %s, want %s", got, row.want)
		}
	}
	for n := 1; n <= maxNodes; n++ {
		for _, f := range []Family{V4, V6} {
			if !clusterCIDR(f).Overlaps(podCIDR(f, n)) || !podCIDR(f, n).Contains(podAddr(f, n, tunnelPod)) ||
				!lanPrefix(f).Contains(lanAddr(f, spareHost+n)) {
				t.Errorf("node %d, %s: ranges do not nest", n, f)
			}
		}
	}
}
