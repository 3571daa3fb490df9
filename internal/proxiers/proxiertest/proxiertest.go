// SPDX-License-Identifier: Apache-2.0

// Package proxiertest is what the tests of proxiers share: nodes, plain and random clusters, labs with traffic, and
// benchmarks of a sync.
package proxiertest

import (
	"fmt"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// Node is a node in an empty namespace, whose loopback device is down.
func Node(t testing.TB, families ...lab.Family) spec.Node {
	t.Helper()
	ns, err := netns.New("n1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	n := on(t, &lab.Node{Host: lab.Host{NS: ns}}, families...)
	n.Name = "n1"
	n.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/48")}
	return n
}

// UpNode is a node that has its loopback addresses, and nothing else.
func UpNode(t testing.TB, families ...lab.Family) spec.Node {
	t.Helper()
	n := Node(t, families...)
	lo, err := n.Host.Netlink().LinkByName("lo")
	if err == nil {
		err = n.Host.Netlink().LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func on(t testing.TB, host *lab.Node, families ...lab.Family) spec.Node {
	return spec.Node{Host: host, Families: families, StateDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
}

// nodes are the nodes of a lab with a program on each.
type nodes struct {
	*lab.Lab
	Instances []spec.Instance // that of each node, while it runs
	State     *store.Snapshot // what the instances were given; it is replaced, never changed
	Places    []spec.Node
}

// build builds a lab in which every pod serves some ports. It ends with the test.
func build(t testing.TB, topology lab.Topology, ports ...traffic.Port) nodes {
	t.Helper()
	l, err := lab.Build(t.Context(), topology)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	for _, p := range l.Pods() {
		serve(t, p, ports...)
	}
	all := nodes{Lab: l, State: &store.Snapshot{}}
	for _, n := range l.Nodes() {
		place := on(t, n, l.Stack().Families()...)
		place.Name, place.ClusterCIDRs, place.PodCIDRs = n.Name(), l.ClusterCIDRs(), n.PodCIDRs()
		all.Places = append(all.Places, place)
	}
	return all
}

// serve serves ports in a pod.
func serve(t testing.TB, pod *lab.Pod, ports ...traffic.Port) {
	t.Helper()
	s, err := traffic.Serve(pod.NS, pod.Name(), nil, ports...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
}

// apply gives all instances a state.
func (n *nodes) apply(t Failer, next *store.Snapshot) {
	t.Helper()
	n.State = next
	for _, in := range n.Instances {
		Apply(t, in, next)
	}
}

// Readdress gives the loopback device of a node an address ("+192.0.2.1/32"), or takes it away ("-192.0.2.1/32").
func Readdress(t testing.TB, n spec.Node, change string) {
	t.Helper()
	nl := n.Host.Netlink()
	set := map[byte]func(netlink.Link, *netlink.Addr) error{'+': nl.AddrAdd, '-': nl.AddrDel}[change[0]]
	lo, err := nl.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	addr, err := netlink.ParseAddr(change[1:])
	if err == nil {
		err = set(lo, addr)
	}
	if err != nil {
		t.Fatalf("%s: %v", change, err)
	}
}

// Cluster makes n Services with endpoints each, in both families.
func Cluster(n, endpoints int) *store.Snapshot {
	s := &store.Snapshot{}
	for i := range n {
		svc, sl := Simple(i, endpoints, lab.V4)
		_, sl6 := Simple(i, endpoints, lab.V6)
		s.Services = append(s.Services, svc)
		s.EndpointSlices = append(s.EndpointSlices, sl, sl6)
	}
	return s
}

// Simple is the i-th Service of a Cluster, and its slice of a family.
func Simple(i, endpoints int, f lab.Family) (*corev1.Service, *discoveryv1.EndpointSlice) {
	name := fmt.Sprintf("svc-%05d", i)
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "test", Name: name},
		Spec: corev1.ServiceSpec{
			Type:       corev1.ServiceTypeClusterIP,
			ClusterIP:  fmt.Sprintf("10.96.%d.%d", i/250, i%250+1),
			ClusterIPs: []string{fmt.Sprintf("10.96.%d.%d", i/250, i%250+1), fmt.Sprintf("fd00:10:96::%x", i+1)},
			Ports:      []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
	sl := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "test", Name: fmt.Sprintf("%s-%s", name, f),
			Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}},
	}
	pattern := "10.244.%d.%d"
	if f == lab.V6 {
		sl.AddressType, pattern = discoveryv1.AddressTypeIPv6, "fd00:10:244:%x::%x"
	}
	for e := range endpoints {
		k := i*endpoints + e
		addr := fmt.Sprintf(pattern, k/250%250, k%250+1)
		sl.Endpoints = append(sl.Endpoints, discoveryv1.Endpoint{Addresses: []string{addr}})
	}
	return svc, sl
}
