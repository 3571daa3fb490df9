// SPDX-License-Identifier: Apache-2.0

package model

import (
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
	"github.com/viplab/viplab/lab/cluster/store"
)

// service makes a dual-stack Service shop/web with one port, http.
func service(change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: corev1.ServiceSpec{
			Type:       corev1.ServiceTypeClusterIP,
			ClusterIP:  "10.96.0.10",
			ClusterIPs: []string{"10.96.0.10", "fd00:10:96::10"},
			Ports:      []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

// slice makes an IPv4 slice of shop/web for port http, from endpoints such as "10.244.1.5 n1" or "10.244.2.5 n2
// terminating": an address, a node or "-", and conditions and hints (see endpoint).
func slice(name string, endpoints ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080)),
			Protocol: new(corev1.ProtocolTCP)}},
	}
	for _, e := range endpoints {
		s.Endpoints = append(s.Endpoints, endpoint(e))
	}
	return s
}

func endpoint(text string) discoveryv1.Endpoint {
	words := strings.Fields(text)
	e := discoveryv1.Endpoint{Addresses: []string{words[0]}, Hints: &discoveryv1.EndpointHints{}}
	if words[1] != "-" {
		e.NodeName = &words[1]
	}
	set := func(ready, serving, terminating bool) {
		e.Conditions = discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating}
	}
	for _, w := range words[2:] {
		kind, name, _ := strings.Cut(w, "=")
		switch kind {
		case "ready":
			set(true, true, false)
		case "unready":
			set(false, false, false)
		case "terminating":
			set(false, true, true)
		case "dead":
			set(false, false, true)
		case "zone":
			e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: name})
		case "node":
			e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode{Name: name})
		default:
			panic("unknown word " + w)
		}
	}
	return e
}

func node(name, zone string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
}

// build makes the state of node n1, in zone a, for objects given in any order.
func build(f lab.Family, objects ...any) *State {
	s := &store.Snapshot{Nodes: []*corev1.Node{node("n0", "b"), node("n1", "a")}}
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.Service:
			s.Services = append(s.Services, o)
		case *discoveryv1.EndpointSlice:
			s.EndpointSlices = append(s.EndpointSlices, o)
		}
	}
	slices.SortFunc(s.EndpointSlices, compareObjects)
	return NewBuilder("n1", f).Build(s)
}

// show writes endpoints as the last byte of the address, with "*" for one on the node, "?" for one of an unknown node
// and "t" for a terminating one.
func show(all []Endpoint) string {
	var out []string
	for _, e := range all {
		text := fmt.Sprint(e.Addr.Addr().As4()[3])
		if e.NodeUnknown {
			text += "?"
		}
		if e.OnNode {
			text += "*"
		}
		if e.Terminating {
			text += "t"
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func TestEndpoints(t *testing.T) {
	for _, c := range []struct {
		name           string
		endpoints      []string
		cluster, local string
		anywhere       bool
	}{
		{"none", nil, "", "", false},
		{"here and there", []string{"10.0.0.1 n1", "10.0.0.2 n2"}, "1* 2", "1*", true},
		{"conditions unset mean ready", []string{"10.0.0.1 n1"}, "1*", "1*", true},
		{"without a node is not local", []string{"10.0.0.1 -"}, "1?", "", true},
		{"unready is never used", []string{"10.0.0.1 n1 unready"}, "", "", false},
		{"dead is never used", []string{"10.0.0.1 n1 dead"}, "", "", false},
		{"terminating gets nothing beside ready", []string{"10.0.0.1 n1 ready", "10.0.0.2 n1 terminating"}, "1*", "1*", true},
		{"terminating is the last resort", []string{"10.0.0.1 n1 unready", "10.0.0.2 n2 terminating"}, "2t", "", true},
		{"last resort here although ready there", []string{"10.0.0.1 n2 ready", "10.0.0.2 n1 terminating"}, "1", "2*t", true},
		{"nothing here", []string{"10.0.0.1 n2 ready", "10.0.0.2 n1 dead"}, "1", "", true},

		{"zone", []string{"10.0.0.1 n2 zone=a", "10.0.0.2 n2 zone=b", "10.0.0.3 n2 zone=b zone=a"}, "1 3", "", true},
		{"a hint is missing", []string{"10.0.0.1 n2 zone=a", "10.0.0.2 n2"}, "1 2", "", true},
		{"no hint for this zone", []string{"10.0.0.1 n2 zone=b", "10.0.0.2 n2 zone=c"}, "1 2", "", true},
		{"unready needs no hint", []string{"10.0.0.1 n2 zone=a", "10.0.0.2 n2 zone=b", "10.0.0.3 n2 unready"}, "1", "", true},
		{"the zone's only one is unready", []string{"10.0.0.1 n2 unready zone=a", "10.0.0.2 n2 zone=b"}, "2", "", true},
		{"node before zone", []string{"10.0.0.1 n1 node=n1 zone=a", "10.0.0.2 n2 node=n2 zone=a"}, "1*", "1*", true},
		{"no node hint for this node", []string{"10.0.0.1 n2 node=n2 zone=a", "10.0.0.2 n3 node=n3 zone=b"}, "1", "", true},
		{"hints do not narrow policy Local", []string{"10.0.0.1 n1 zone=b", "10.0.0.2 n2 zone=a"}, "2", "1*", true},
		{"hints do not narrow the last resort", []string{"10.0.0.1 n2 terminating zone=b", "10.0.0.2 n2 terminating zone=a"},
			"1t 2t", "", true},

		{"junk", []string{"nonsense n1", "fd00::1 n1", "0.0.0.0 n1", "10.0.0.9 n2"}, "9", "", true},
		{"leading zeros are decimal", []string{"10.0.0.010 n2"}, "10", "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := build(lab.V4, service(), slice("a", c.endpoints...)).Services[0].Ports[0]
			if got := show(p.Cluster); got != c.cluster {
				t.Errorf("cluster: got %q, want %q", got, c.cluster)
			}
			if got := show(p.Local); got != c.local {
				t.Errorf("local: got %q, want %q", got, c.local)
			}
			if p.Anywhere != c.anywhere {
				t.Errorf("anywhere: got %v, want %v", p.Anywhere, c.anywhere)
			}
		})
	}
}

// TestNodeOutsideZones: a node that has no zone uses everything, whatever the hints.
func TestNodeOutsideZones(t *testing.T) {
	s := &store.Snapshot{
		Services:       []*corev1.Service{service()},
		EndpointSlices: []*discoveryv1.EndpointSlice{slice("a", "10.0.0.1 n2 zone=a", "10.0.0.2 n2 zone=")},
	}
	b := NewBuilder("n1", lab.V4)
	if got := show(b.Build(s).Services[0].Ports[0].Cluster); got != "1 2" {
		t.Errorf("without a node object: got %q, want both", got)
	}
	relabelled := *s
	relabelled.Nodes = []*corev1.Node{node("n1", "a")}
	if got := show(b.Build(&relabelled).Services[0].Ports[0].Cluster); got != "1" {
		t.Errorf("after the node got a zone: got %q, want that of the zone", got)
	}
}

func TestUnionOfSlices(t *testing.T) {
	named := func(s *discoveryv1.EndpointSlice, port int32) *discoveryv1.EndpointSlice {
		s.Ports = []discoveryv1.EndpointPort{{Name: new("http"), Port: &port}}
		return s
	}
	adm := slice("adm", "10.0.0.7 n1")
	adm.Ports = []discoveryv1.EndpointPort{{Name: new("adm"), Port: new(int32(9090))}, {Name: new("http"), Port: nil},
		{Name: new("http"), Port: new(int32(0))}}
	foreign := slice("foreign", "10.0.0.66 n1")
	foreign.Namespace = "else"
	fqdn := slice("fqdn", "10.0.0.67 n1")
	fqdn.AddressType = discoveryv1.AddressTypeFQDN
	six := slice("six", "fd00::1 n1")
	six.AddressType = discoveryv1.AddressTypeIPv6
	udp := slice("udp", "10.0.0.68 n1")
	udp.Ports[0].Protocol = new(corev1.ProtocolUDP)
	headless := slice("headless", "10.0.0.69 n1")
	headless.Labels[corev1.IsHeadlessService] = ""
	empty := slice("empty")
	empty.Endpoints = []discoveryv1.Endpoint{{}}

	two := service(func(s *corev1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "adm", Port: 9000})
	})
	st := build(lab.V4, two,
		slice("a", "10.0.0.1 n1 terminating", "10.0.0.2 n2"), slice("b", "10.0.0.1 n1 ready"),
		named(slice("c", "10.0.0.2 n2"), 8081),
		adm, foreign, fqdn, six, udp, headless, empty)
	var got []string
	for _, p := range st.Services[0].Ports {
		for _, e := range p.Cluster {
			got = append(got, p.ID.Port+" "+e.Addr.String())
		}
	}
	want := []string{"http 10.0.0.1:8080", "http 10.0.0.2:8080", "http 10.0.0.2:8081", "adm 10.0.0.7:9090"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if v6 := build(lab.V6, two, six).Services[0].Ports[0]; len(v6.Cluster) != 1 ||
		v6.ClusterIP.String() != "fd00:10:96::10" {
		t.Errorf("IPv6: got %v behind %v", v6.Cluster, v6.ClusterIP)
	}
}

func TestServing(t *testing.T) {
	p := build(lab.V4, service(), slice("a", "10.0.0.1 n1 ready", "10.0.0.2 n2 terminating", "10.0.0.3 n2 dead",
		"10.0.0.4 n2 unready")).Services[0].Ports[0]
	want := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:8080"), netip.MustParseAddrPort("10.0.0.2:8080")}
	if !slices.Equal(p.Serving, want) {
		t.Errorf("got %v, want %v", p.Serving, want)
	}
}

func TestNotServed(t *testing.T) {
	for name, change := range map[string]func(*corev1.Service){
		"ExternalName with a stale address": func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName },
		"headless": func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = "None",
				[]string{"None"}
		},
		"no address yet":    func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "", nil },
		"other proxier":     func(s *corev1.Service) { s.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "x"} },
		"labelled headless": func(s *corev1.Service) { s.Labels = map[string]string{corev1.IsHeadlessService: ""} },
		"other family": func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = "fd00::1",
				[]string{"fd00::1"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			if st := build(lab.V4, service(change), slice("a", "10.0.0.1 n1")); len(st.Services) != 0 {
				t.Errorf("served: %+v", st.Services[0])
			}
		})
	}
}

func TestFrontends(t *testing.T) {
	local := corev1.ServiceInternalTrafficPolicyLocal
	svc := service(func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Spec.Ports[0].NodePort = 30080
		s.Spec.ExternalIPs = []string{"203.0.113.1", "fd00:1::1", "nonsense", "203.0.113.1"}
		s.Spec.LoadBalancerSourceRanges = []string{" 198.51.100.0/24 ", "fd00:2::/64", "nonsense"}
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		s.Spec.InternalTrafficPolicy = &local
		s.Spec.HealthCheckNodePort = 32000
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(10))}}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{
			{IP: "192.0.2.1"}, {IP: "192.0.2.2", IPMode: new(corev1.LoadBalancerIPModeVIP)},
			{IP: "192.0.2.3", IPMode: new(corev1.LoadBalancerIPModeProxy)}, {Hostname: "lb.example"}, {IP: "fd00:3::1"},
		}
	})
	// Two ports of one pod count once for the health check, and only what is ready, and here.
	other := slice("b", "10.0.0.1 n1")
	other.Ports[0].Name = new("other")
	st := build(lab.V4, svc, slice("a", "10.0.0.1 n1", "10.0.0.2 n1", "10.0.0.3 n1 terminating", "10.0.0.4 n2"), other)
	got := st.Services[0]
	p := *got.Ports[0]
	p.Cluster, p.Local, p.Serving = nil, nil, nil
	want := Port{
		ID:              PortID{"shop", "web", "http", corev1.ProtocolTCP},
		Number:          80,
		ClusterIP:       netip.MustParseAddr("10.96.0.10"),
		NodePort:        30080,
		ExternalIPs:     []netip.Addr{netip.MustParseAddr("203.0.113.1")},
		LoadBalancerIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")},
		SourceRanges:    []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")},
		InternalLocal:   true, ExternalLocal: true,
		Affinity:        10 * time.Second,
		HealthCheckPort: 32000,
		Anywhere:        true,
	}
	if a, b := fmt.Sprintf("%+v", p), fmt.Sprintf("%+v", want); a != b {
		t.Errorf("got  %s\nwant %s", a, b)
	}
	if got.Health == nil || *got.Health != (HealthCheck{Port: 32000, LocalEndpoints: 2}) {
		t.Errorf("health check: got %+v, want 2 endpoints on 32000", got.Health)
	}
}

func TestDetails(t *testing.T) {
	port := func(change func(*corev1.Service)) *Port { return build(lab.V4, service(change)).Services[0].Ports[0] }
	if p := port(func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }); p.Affinity != 3*time.Hour {
		t.Errorf("affinity without a time: got %v, want the API's default", p.Affinity)
	}
	for _, ranges := range [][]string{{"0.0.0.0/0", "10.0.0.0/8"}, {"fd00::/8"}, nil} {
		p := port(func(s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeLoadBalancer
			s.Spec.LoadBalancerSourceRanges = ranges
		})
		if p.SourceRanges != nil {
			t.Errorf("source ranges %q: got %v, want no limit", ranges, p.SourceRanges)
		}
	}
	clusterIPOnly := port(func(s *corev1.Service) {
		s.Spec.Ports[0].NodePort = 30080
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	})
	if clusterIPOnly.External() || clusterIPOnly.ExternalLocal {
		t.Errorf("leftovers of another type are in use: %+v", clusterIPOnly)
	}
	if old := port(func(s *corev1.Service) { s.Spec.ClusterIPs = nil }); old.ClusterIP.String() != "10.96.0.10" {
		t.Errorf("object without clusterIPs: got %v", old.ClusterIP)
	}
	if n := build(lab.V4, service(func(s *corev1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, s.Spec.Ports[0], corev1.ServicePort{Name: "zero"})
	})).Services[0].Ports; len(n) != 1 {
		t.Errorf("a repeated port and port 0: got %d ports, want 1", len(n))
	}
}

func TestPortIDString(t *testing.T) {
	for id, want := range map[PortID]string{
		{"ns", "svc", "", "TCP"}:    "ns/svc",
		{"ns", "svc", "dns", "UDP"}: "ns/svc:dns",
	} {
		if got := id.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
