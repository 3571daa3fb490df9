// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/proxiers/dnat"
	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/proxiers/model"
	"github.com/viplab/viplab/suite/spec"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

// start starts the proxier on a node, or skips the test where it cannot run. IPVS looks up the route to a backend's
// address, and a node without an address has no routes.
func start(t testing.TB, node spec.Node) *instance {
	t.Helper()
	in := &instance{}
	d := definition
	d.New = func(_ context.Context, site kit.Site) (kit.Mechanism, error) {
		f, err := newFamily(site)
		in.node, in.families = site.Node, append(in.families, f)
		return f, err
	}
	in.Instance = proxiertest.Start(t, kit.New(d), node)
	return in
}

// instance is the proxier on a node, with its mechanisms.
type instance struct {
	spec.Instance
	node     spec.Node
	families []*family
}

// testPlace is a node with two addresses.
var testPlace = place{
	own:       addrs("192.168.7.11", "192.168.7.111", "10.244.1.1"),
	nodePorts: addrs("192.168.7.11", "192.168.7.111", "10.244.1.1"),
	primary:   netip.MustParseAddr("192.168.7.11"),
}

// testTranslator is that of a node with a range of pods.
var testTranslator = translator{dnat.Chains{NodePods: netip.MustParsePrefix("10.244.1.0/24")}, 0x2000}

// near and far are endpoints on this node and on another one.
var (
	near = model.Endpoint{Addr: netip.MustParseAddrPort("10.244.1.5:8080"), OnNode: true}
	far  = model.Endpoint{Addr: netip.MustParseAddrPort("10.244.2.7:8080")}
)

// web is a Service with one port, which serves on its ClusterIP by both endpoints. change makes it another one.
func web(change func(*model.Port)) *model.Service {
	p := &model.Port{
		ID:     model.PortID{Namespace: "test", Name: "web", Port: "http", Protocol: corev1.ProtocolTCP},
		Number: 80, ClusterIP: netip.MustParseAddr("10.96.0.10"),
		Cluster: []model.Endpoint{near, far}, Local: []model.Endpoint{near}, Anywhere: true,
	}
	if change != nil {
		change(p)
	}
	return &model.Service{Namespace: p.ID.Namespace, Name: p.ID.Name, Ports: []*model.Port{p}}
}

// withoutLocal removes the endpoint on this node.
func withoutLocal(p *model.Port) { p.Cluster, p.Local = []model.Endpoint{far}, nil }

const affinity = 10800 * time.Second

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, t := range texts {
		out = append(out, netip.MustParseAddr(t))
	}
	return out
}

// expectLines compares two lists of lines whose order does not matter.
func expectLines(t *testing.T, what string, got, want []string) {
	t.Helper()
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if slices.Equal(got, want) {
		return
	}
	t.Errorf("%s:", what)
	for _, g := range got {
		if !slices.Contains(want, g) {
			t.Errorf("  surplus %s", g)
		}
	}
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("  missing %s", w)
		}
	}
	if len(got) != len(slices.Compact(got)) {
		t.Error("  something is there twice")
	}
}
