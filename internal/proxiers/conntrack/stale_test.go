// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/ti-mo/conntrack"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/proxiers/model"
)

// The node is 192.168.7.11. Its DNS Service has a UDP port with every kind of frontend and one endpoint, 10.244.1.5:53.
// A second UDP Service has no endpoints, and a third one speaks TCP.
func wanted() *Wanted {
	ip := netip.MustParseAddr
	state := &model.State{Services: slices.Concat(services(lab.V4), services(lab.V6))}
	return WantedOf(state, []netip.Addr{ip("192.168.7.11"), ip("127.0.0.1")})
}

// services are those of a family.
func services(f lab.Family) []*model.Service {
	ip := netip.MustParseAddr
	port := func(proto corev1.Protocol, vip string, number, nodePort uint16, serving ...string) *model.Port {
		p := &model.Port{ID: model.PortID{Protocol: proto}, ClusterIP: ip(vip), Number: number, NodePort: nodePort}
		for _, s := range serving {
			p.Serving = append(p.Serving, netip.MustParseAddrPort(s))
		}
		return p
	}
	if f == lab.V6 {
		return []*model.Service{{Ports: []*model.Port{port(corev1.ProtocolUDP, "fd00:10:96::10", 53, 0,
			"[fd00:10:244:1::5]:53")}}}
	}
	dns := port(corev1.ProtocolUDP, "10.96.0.10", 53, 30053, "10.244.1.5:53")
	dns.ExternalIPs = []netip.Addr{ip("203.0.113.1")}
	dns.LoadBalancerIPs = []netip.Addr{ip("192.0.2.1")}
	return []*model.Service{{Ports: []*model.Port{
		dns, port(corev1.ProtocolUDP, "10.96.0.11", 53, 30054), port(corev1.ProtocolTCP, "10.96.0.12", 80, 30080,
			"10.244.1.6:80"),
	}}}
}

// flow is a flow from a client to an address that another one answers.
func flow(proto uint8, to, by string) *conntrack.Flow {
	orig, reply := netip.MustParseAddrPort(to), netip.MustParseAddrPort(by)
	client := netip.MustParseAddr("10.244.9.9")
	if orig.Addr().Is6() {
		client = netip.MustParseAddr("fd00:10:244:9::9")
	}
	f := conntrack.NewFlow(proto, 0, client, orig.Addr(), 40000, orig.Port(), 60, 0)
	f.TupleReply.IP.SourceAddress, f.TupleReply.Proto.SourcePort = reply.Addr(), reply.Port()
	return &f
}

func TestStale(t *testing.T) {
	const udp, tcp = unix.IPPROTO_UDP, unix.IPPROTO_TCP
	w := wanted()
	for _, c := range []struct {
		name  string
		flow  *conntrack.Flow
		stale bool
	}{
		{"healthy", flow(udp, "10.96.0.10:53", "10.244.1.5:53"), false},
		{"endpoint gone", flow(udp, "10.96.0.10:53", "10.244.1.4:53"), true},
		{"target port changed", flow(udp, "10.96.0.10:53", "10.244.1.5:5353"), true},
		{"never translated", flow(udp, "10.96.0.10:53", "10.96.0.10:53"), true},
		{"other port of the address", flow(udp, "10.96.0.10:54", "10.96.0.10:54"), false},
		{"external IP, healthy", flow(udp, "203.0.113.1:53", "10.244.1.5:53"), false},
		{"external IP, gone", flow(udp, "203.0.113.1:53", "10.244.1.4:53"), true},
		{"load balancer IP, gone", flow(udp, "192.0.2.1:53", "10.244.1.4:53"), true},
		{"NodePort, healthy", flow(udp, "192.168.7.11:30053", "10.244.1.5:53"), false},
		{"NodePort, gone", flow(udp, "192.168.7.11:30053", "10.244.1.4:53"), true},
		{"NodePort, never translated", flow(udp, "127.0.0.1:30053", "127.0.0.1:30053"), true},
		{"NodePort of another machine", flow(udp, "192.168.7.201:30053", "192.168.7.201:30053"), false},
		{"no endpoint", flow(udp, "10.96.0.11:53", "10.244.1.4:53"), true},
		{"no endpoint, NodePort", flow(udp, "192.168.7.11:30054", "10.244.1.4:53"), true},
		{"TCP", flow(tcp, "10.96.0.12:80", "10.244.1.4:80"), false},
		{"TCP to a UDP port", flow(tcp, "10.96.0.10:53", "10.96.0.10:53"), false},
		{"foreign", flow(udp, "8.8.8.8:53", "8.8.8.8:53"), false},
		{"IPv6, healthy", flow(udp, "[fd00:10:96::10]:53", "[fd00:10:244:1::5]:53"), false},
		{"IPv6, gone", flow(udp, "[fd00:10:96::10]:53", "[fd00:10:244:1::4]:53"), true},
	} {
		if got := w.Stale(c.flow); got != c.stale {
			t.Errorf("%s: got %v, want %v", c.name, got, c.stale)
		}
	}
}

// What has to go of the flows to some Services' frontends does not depend on the others; theirs stay, whatever they
// are.
func TestStaleOfSome(t *testing.T) {
	const udp = unix.IPPROTO_UDP
	four, six := wanted().After(nil, services(lab.V4)), wanted().After(nil, services(lab.V6))
	for _, c := range []struct {
		name string
		flow *conntrack.Flow
		part *Wanted
		want bool
	}{
		{"of its own", flow(udp, "10.96.0.10:53", "10.244.1.4:53"), four, true},
		{"load balancer IP of its own", flow(udp, "192.0.2.1:53", "10.244.1.4:53"), four, true},
		{"NodePort of its own", flow(udp, "192.168.7.11:30053", "10.244.1.4:53"), four, true},
		{"healthy", flow(udp, "10.96.0.10:53", "10.244.1.5:53"), four, false},
		{"of another", flow(udp, "10.96.0.10:53", "10.244.1.4:53"), six, false},
		{"NodePort of another", flow(udp, "192.168.7.11:30053", "10.244.1.4:53"), six, false},
	} {
		if got := c.part.Stale(c.flow); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
	tcp := []*model.Service{{Ports: []*model.Port{{ID: model.PortID{Protocol: corev1.ProtocolTCP}, Number: 53,
		ClusterIP: netip.MustParseAddr("10.96.0.10")}}}}
	if part := wanted().After(tcp, tcp); part != nil {
		t.Errorf("of a TCP Service: %v, want nothing to say", part)
	}
}

// Flows to a frontend that no Service has any more are stale if they lead to its former endpoints. All others belong to
// somebody else.
func TestStaleAfterTheFrontend(t *testing.T) {
	const udp = unix.IPPROTO_UDP
	local := []netip.Addr{netip.MustParseAddr("192.168.7.11")}
	deleted := NewWanted(local).After(services(lab.V4), nil)
	moved := services(lab.V4)
	moved[0].Ports[0].NodePort, moved[0].Ports[0].LoadBalancerIPs = 30053, nil
	replaced := WantedOf(&model.State{Services: moved}, local).After(services(lab.V4), moved)
	for _, c := range []struct {
		name string
		flow *conntrack.Flow
		part *Wanted
		want bool
	}{
		{"Service deleted", flow(udp, "10.96.0.10:53", "10.244.1.5:53"), deleted, true},
		{"Service deleted, NodePort", flow(udp, "192.168.7.11:30053", "10.244.1.5:53"), deleted, true},
		{"Service deleted, never translated", flow(udp, "10.96.0.10:53", "10.96.0.10:53"), deleted, false},
		{"Service deleted, a process of the node", flow(udp, "192.168.7.11:30053", "192.168.7.11:30053"), deleted, false},
		{"Service deleted, led elsewhere", flow(udp, "192.168.7.11:30053", "10.244.1.77:53"), deleted, false},
		{"load balancer IP gone", flow(udp, "192.0.2.1:53", "10.244.1.5:53"), replaced, true},
		{"load balancer IP gone, never translated", flow(udp, "192.0.2.1:53", "192.0.2.1:53"), replaced, false},
		{"what stays", flow(udp, "10.96.0.10:53", "10.244.1.5:53"), replaced, false},
	} {
		if got := c.part.Stale(c.flow); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

// What a former proxier has translated for a frontend that is not served is an orphan.
func TestOrphan(t *testing.T) {
	const udp, tcp = unix.IPPROTO_UDP, unix.IPPROTO_TCP
	w := wanted()
	if w.Orphan(flow(udp, "10.96.0.99:53", "10.244.1.5:53")) {
		t.Error("a flow is an orphan where nothing is inherited")
	}
	w.Inherited = lab.V4
	for _, c := range []struct {
		name string
		flow *conntrack.Flow
		want bool
	}{
		{"unserved ClusterIP", flow(udp, "10.96.0.99:53", "10.244.1.5:53"), true},
		{"unserved NodePort", flow(udp, "192.168.7.11:30099", "10.244.1.5:53"), true},
		{"served", flow(udp, "10.96.0.10:53", "10.244.1.5:53"), false},
		{"served, led elsewhere", flow(udp, "10.96.0.10:53", "10.244.1.77:53"), false},
		{"never translated", flow(udp, "8.8.8.8:53", "8.8.8.8:53"), false},
		{"TCP", flow(tcp, "10.96.0.99:53", "10.244.1.5:53"), false},
		{"of the other family", flow(udp, "[fd00:10:96::99]:53", "[fd00:10:244:1::5]:53"), false},
	} {
		if got := w.Orphan(c.flow); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestStaleAtRelays(t *testing.T) {
	const udp = unix.IPPROTO_UDP
	w := wanted()
	if w.Stale(flow(udp, "203.0.113.9:53", "169.254.20.1:4711")) {
		t.Error("without relays, a flow of somebody else is stale")
	}
	w.Relays = netip.MustParseAddr("169.254.20.1")
	if !w.Stale(flow(udp, "203.0.113.9:53", "169.254.20.1:4711")) {
		t.Error("a flow from no frontend to a relay is not stale")
	}
	if w.Stale(flow(udp, "203.0.113.9:53", "203.0.113.9:53")) {
		t.Error("a flow of somebody else is stale")
	}
}

func TestConcerns(t *testing.T) {
	with := func(p corev1.Protocol) []*model.Service {
		return []*model.Service{{Ports: []*model.Port{{ID: model.PortID{Protocol: "TCP"}}, {ID: model.PortID{Protocol: p}}}}}
	}
	if Concerns(nil) || Concerns(with("TCP")...) || Concerns(with("SCTP")...) || !Concerns(with("UDP")...) {
		t.Error("UDP ports, and only they, are a concern")
	}
}
