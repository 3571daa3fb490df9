package iptables

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/kube"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/proxiers/internal/proxiertest"
	"github.com/viplab/viplab/suite/spec"
)

// The conformance suite judges what this proxier does with packets. The tests here are few, and there to say at once
// which part of it is broken.

// world is a lab of two nodes with a proxier on each, and a server in every pod: a1 and b1 on n1, a2 on n2.
type world struct {
	*lab.Lab
	proxiers []*instance
	state    kube.Snapshot
}

func newWorld(t *testing.T, b Backend, pods lab.PodNetwork) *world {
	t.Helper()
	l, err := lab.Build(t.Context(), lab.Topology{
		Nodes: []lab.NodeSpec{
			{Name: "n1", Pods: []lab.PodSpec{{Name: "a1"}, {Name: "b1"}}}, {Name: "n2", Pods: []lab.PodSpec{{Name: "a2"}}},
		},
		Stack:      lab.Dual,
		PodNetwork: pods,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	w := &world{Lab: l}
	for _, p := range l.Pods() {
		s, err := traffic.Serve(p.NS, p.Name(), nil, traffic.Port{Proto: "tcp", Number: 8080}, traffic.Port{Proto: "udp", Number: 8080})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
	}
	for _, n := range l.Nodes() {
		w.proxiers = append(w.proxiers, start(t, b, w.place(t, n)))
	}
	return w
}

func (w *world) place(t *testing.T, n *lab.Node) spec.Node {
	node := proxiertest.Node(t, lab.V4, lab.V6)
	node.Name, node.Host, node.ClusterCIDRs = n.Name(), n, w.ClusterCIDRs()
	return node
}

// apply adds a Service with these pods behind it, and makes the nodes obey.
func (w *world) apply(t *testing.T, svc *corev1.Service, pods ...string) {
	t.Helper()
	remove := func(o metav1.Object) bool {
		return o.GetName() == svc.Name || o.GetLabels()[discoveryv1.LabelServiceName] == svc.Name
	}
	next := w.state
	next.Services = append(slices.DeleteFunc(slices.Clone(next.Services), func(o *corev1.Service) bool { return remove(o) }), svc)
	next.EndpointSlices = slices.DeleteFunc(slices.Clone(next.EndpointSlices), func(o *discoveryv1.EndpointSlice) bool { return remove(o) })
	for _, f := range w.Stack().Families() {
		sl := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: svc.Name + "-" + f.String(), Labels: map[string]string{discoveryv1.LabelServiceName: svc.Name}},
			AddressType: map[lab.Family]discoveryv1.AddressType{lab.V4: discoveryv1.AddressTypeIPv4, lab.V6: discoveryv1.AddressTypeIPv6}[f],
		}
		for _, p := range svc.Spec.Ports {
			sl.Ports = append(sl.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: proxiertest.Ptr(int32(8080))})
		}
		for _, p := range pods {
			node := w.Pod(p).Node().Name()
			sl.Endpoints = append(sl.Endpoints, discoveryv1.Endpoint{Addresses: []string{w.Pod(p).Addr(f).String()}, NodeName: &node})
		}
		next.EndpointSlices = append(next.EndpointSlices, sl)
	}
	slices.SortFunc(next.Services, func(a, b *corev1.Service) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(next.EndpointSlices, func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	w.state = next
	for _, p := range w.proxiers {
		apply(t, p, &next)
	}
}

// testService makes a dual-stack Service with TCP and UDP on port 80. Its addresses end in number.
func testService(name string, number int, change func(*corev1.ServiceSpec)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		Type:       corev1.ServiceTypeClusterIP,
		ClusterIPs: []string{fmt.Sprintf("10.96.0.%d", number), fmt.Sprintf("fd00:10:96::%d", number)},
		Ports: []corev1.ServicePort{
			{Name: "tcp", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: int32(30000 + number)},
			{Name: "udp", Protocol: corev1.ProtocolUDP, Port: 80, NodePort: int32(30000 + number)},
		},
	}}
	s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	if change != nil {
		change(&s.Spec)
	}
	return s
}

func asNodePort(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort }
func asLocal(s *corev1.ServiceSpec) {
	asNodePort(s)
	s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

// row is a probe and what must come of it.
type row struct {
	from    *netns.NS
	to      netip.AddrPort
	outcome traffic.Outcome
	servers []string   // who may answer
	peer    netip.Addr // whom the server has to see; the zero Addr stands for some address of a node
}

func (w *world) check(t *testing.T, proto string, r row) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	f := lab.FamilyOf(r.to.Addr())
	a := traffic.Probe{From: r.from, To: r.to, Proto: proto, Fences: []netip.Addr{w.Node("n2").Addr(f)}}.Do(ctx)
	what := fmt.Sprintf("%s %s -> %s", proto, r.from.Name(), r.to)
	switch {
	case a.Fault != nil:
		t.Fatalf("%s: %v", what, a.Fault)
	case a.Outcome != r.outcome:
		t.Errorf("%s: got %v (%s), want %v", what, a.Outcome, a.Detail, r.outcome)
	case r.outcome == traffic.Reply && !slices.Contains(r.servers, a.Greeting.Server):
		t.Errorf("%s: %s answered, want one of %v", what, a.Greeting.Server, r.servers)
	case r.outcome == traffic.Reply && r.peer.IsValid() && a.Greeting.Peer.Addr() != r.peer:
		t.Errorf("%s: the server saw %s, want %s", what, a.Greeting.Peer, r.peer)
	case r.outcome == traffic.Reply && !r.peer.IsValid() && !w.isNode(t, a.Greeting.Peer.Addr()):
		t.Errorf("%s: the server saw %s, want a node", what, a.Greeting.Peer)
	}
}

func (w *world) isNode(t *testing.T, a netip.Addr) bool {
	t.Helper()
	for _, n := range w.Nodes() {
		local, err := n.LocalAddrs()
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(local, a) {
			return true
		}
	}
	return false
}

func TestTraffic(t *testing.T) {
	for _, b := range backends {
		for _, pods := range []lab.PodNetwork{lab.Bridge, lab.Routed} {
			t.Run(fmt.Sprintf("%s %v", b, pods), func(t *testing.T) {
				w := newWorld(t, b, pods)
				w.apply(t, testService("web", 10, asNodePort), "b1", "a2")
				w.apply(t, testService("local", 11, asLocal), "a2")
				w.apply(t, testService("empty", 12, asNodePort))
				w.apply(t, testService("self", 13, nil), "a1")
				for _, f := range w.Stack().Families() {
					for _, proto := range []string{"tcp", "udp"} {
						for _, r := range w.rows(f) {
							w.check(t, proto, r)
						}
					}
				}
			})
		}
	}
}

func (w *world) rows(f lab.Family) []row {
	vip := func(number int) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr(map[lab.Family]string{lab.V4: "10.96.0.", lab.V6: "fd00:10:96::"}[f]+fmt.Sprint(number)), 80)
	}
	nodePort := func(node string, number int) netip.AddrPort {
		return netip.AddrPortFrom(w.Node(node).Addr(f), uint16(30000+number))
	}
	a1, n1, n2, client := w.Pod("a1"), w.Node("n1"), w.Node("n2"), w.Client()
	web := []string{"b1", "a2"}
	rows := []row{
		{a1.NS, vip(10), traffic.Reply, web, a1.Addr(f)},
		{n1.NS, vip(10), traffic.Reply, web, netip.Addr{}},
		{client.NS, nodePort("n1", 10), traffic.Reply, web, netip.Addr{}},
		{client.NS, nodePort("n2", 10), traffic.Reply, web, netip.Addr{}},
		{n1.NS, nodePort("n1", 10), traffic.Reply, web, netip.Addr{}},

		{client.NS, nodePort("n2", 11), traffic.Reply, []string{"a2"}, client.Addr(f)},
		{client.NS, nodePort("n1", 11), traffic.Silence, nil, netip.Addr{}},
		{a1.NS, vip(11), traffic.Reply, []string{"a2"}, a1.Addr(f)},
		{a1.NS, nodePort("n1", 11), traffic.Reply, []string{"a2"}, a1.Addr(f)},
		{n1.NS, nodePort("n1", 11), traffic.Reply, []string{"a2"}, netip.Addr{}},

		{a1.NS, vip(12), traffic.Refused, nil, netip.Addr{}},
		{n2.NS, vip(12), traffic.Refused, nil, netip.Addr{}},
		{client.NS, nodePort("n1", 12), traffic.Refused, nil, netip.Addr{}},

		{a1.NS, vip(13), traffic.Reply, []string{"a1"}, netip.Addr{}},
	}
	if f == lab.V4 {
		rows = append(rows, row{n1.NS, netip.MustParseAddrPort("127.0.0.1:30010"), traffic.Reply, web, netip.Addr{}})
	} else {
		rows = append(rows, row{n1.NS, netip.MustParseAddrPort("[::1]:30010"), traffic.Refused, nil, netip.Addr{}})
	}
	return rows
}

// TestUDPFollowsEndpoints: a client that keeps its port, and never pauses, is taken along when endpoints come and go.
func TestUDPFollowsEndpoints(t *testing.T) {
	w := newWorld(t, NFT, lab.Bridge)
	w.apply(t, testService("web", 10, asNodePort))
	a1, client := w.Pod("a1"), w.Client()
	source := netip.MustParseAddrPort("0.0.0.0:40000")
	for _, from := range []struct {
		ns *netns.NS
		to netip.AddrPort
	}{{a1.NS, netip.MustParseAddrPort("10.96.0.10:80")}, {client.NS, netip.AddrPortFrom(w.Node("n1").Addr(lab.V4), 30010)}} {
		for _, step := range []struct {
			pods    []string
			outcome traffic.Outcome
			server  string
		}{
			{nil, traffic.Refused, ""},
			{[]string{"b1"}, traffic.Reply, "b1"},
			{[]string{"b1", "a2"}, traffic.Reply, "b1"},
			{[]string{"a2"}, traffic.Reply, "a2"},
		} {
			w.apply(t, testService("web", 10, asNodePort), step.pods...)
			a := traffic.Probe{From: from.ns, Source: source, To: from.to, Proto: "udp"}.Do(t.Context())
			if a.Fault != nil || a.Outcome != step.outcome || a.Greeting.Server != step.server {
				t.Errorf("%s -> %s with endpoints %v: got %v %s (%v), want %v %s", from.ns.Name(), from.to, step.pods,
					a.Outcome, a.Greeting.Server, a.Fault, step.outcome, step.server)
			}
		}
	}
}

// TestRestartIsTransparent: connections live on, and clients stay with their endpoints, while one proxier takes over
// from another one.
func TestRestartIsTransparent(t *testing.T) {
	for _, b := range backends {
		t.Run(string(b), func(t *testing.T) {
			w := newWorld(t, b, lab.Bridge)
			w.apply(t, testService("web", 10, func(s *corev1.ServiceSpec) { s.SessionAffinity = corev1.ServiceAffinityClientIP }), "a1", "b1", "a2")
			probe := traffic.Probe{From: w.Pod("a1").NS, To: netip.MustParseAddrPort("10.96.0.10:80"), Proto: "tcp"}
			conn, first := probe.Open(t.Context())
			if conn == nil {
				t.Fatalf("before: %v %v", first.Outcome, first.Fault)
			}
			defer conn.Close()
			for range 5 {
				next := start(t, b, w.place(t, w.Node("n1")))
				apply(t, next, &w.state)
				if a := conn.Exchange(t.Context()); a.Outcome != traffic.Reply {
					t.Fatalf("the connection after a restart: %v %s", a.Outcome, a.Detail)
				}
				if a := probe.Do(t.Context()); a.Outcome != traffic.Reply || a.Greeting.Server != first.Greeting.Server {
					t.Fatalf("a new connection after a restart: %v from %q, want one from %q", a.Outcome, a.Greeting.Server, first.Greeting.Server)
				}
			}
		})
	}
}
