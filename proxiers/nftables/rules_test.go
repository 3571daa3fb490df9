// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/proxiers/nft"
	"github.com/viplab/viplab/internal/proxiers/proxiertest/port"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/proxiers/model"
)

// TestNames holds the names that kube-proxy gives, from its own tests.
func TestNames(t *testing.T) {
	id := model.PortID{Namespace: "ns1", Name: "svc1", Port: "p80", Protocol: corev1.ProtocolTCP}
	if got, want := portName(id), "ULMVA6XW-ns1/svc1/tcp/p80"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for ep, want := range map[string]string{
		"10.180.0.1:80":         "endpoint-5OJB2KTY-ns1/svc1/tcp/p80__10.180.0.1/80",
		"[fd00:10:180::1]:8080": "fd00.10.180..1/8080",
	} {
		if got := endpointChain(id, netip.MustParseAddrPort(ep)); !strings.HasSuffix(got, want) {
			t.Errorf("%s: got %s, want %s", ep, got, want)
		}
	}
}

// svc1 is the Service that most tests change. Its endpoints listen on another port than it does.
func svc1(change ...func(*model.Port)) *model.Service {
	return port.Service(append([]func(*model.Port){port.TargetPort(8080)}, change...)...)
}

// Common parts of the expected rules.
const (
	known = `
@cluster-ips 172.30.0.41
`
	hairpin = `
@hairpin-connections 10.180.0.1 . 10.180.0.1 . tcp . 8080
`
	use0      = "\nuse-0 dnat ip addr . port to ip daddr . meta l4proto . th dport map @endpoints-0\n"
	use1      = "\nuse-1 dnat ip addr . port to ip daddr . meta l4proto . th dport map @endpoints-1\n"
	localUse0 = "\nlocal-use-0 dnat ip addr . port to ip daddr . meta l4proto . th dport map @local-endpoints-0\n"
	pick2     = use0 + use1 + "pick-2 numgen random mod 2 vmap { 0 : goto use-0, 1 : goto use-1 }\n"
	// The ClusterIP leads to either endpoint.
	clusterIP = known + hairpin + pick2 + `
@service-ips 172.30.0.41 . tcp . 80 : goto pick-2
@endpoints-0 172.30.0.41 . tcp . 80 : 10.180.0.1 . 8080
@endpoints-1 172.30.0.41 . tcp . 80 : 10.180.2.1 . 8080
`
)

var fragmentsCases = []struct {
	name string
	svc  *model.Service
	want string
}{
	{"ClusterIP", svc1(), clusterIP},
	{"ClusterIP without endpoints", svc1(port.NoEndpoints), known + `
@no-endpoint-services 172.30.0.41 . tcp . 80 : goto reject-chain
`},
	{"one endpoint", svc1(port.RemoteOnly), known + use0 + `
@service-ips 172.30.0.41 . tcp . 80 : goto use-0
@endpoints-0 172.30.0.41 . tcp . 80 : 10.180.2.1 . 8080
`},
	{"endpoint by hand, among the node's pods", svc1(func(p *model.Port) {
		port.Behind(p, model.Endpoint{Addr: netip.MustParseAddrPort("10.180.0.1:8080")})
	}), known + hairpin + use0 + `
@service-ips 172.30.0.41 . tcp . 80 : goto use-0
@endpoints-0 172.30.0.41 . tcp . 80 : 10.180.0.1 . 8080
`},
	{"internal policy Local", svc1(port.ITPLocal), known + hairpin + localUse0 + `
@service-ips 172.30.0.41 . tcp . 80 : goto local-use-0
@local-endpoints-0 172.30.0.41 . tcp . 80 : 10.180.0.1 . 8080
`},
	{"internal policy Local, nothing here", svc1(port.ITPLocal, port.RemoteOnly), known + `
@no-endpoint-services 172.30.0.41 . tcp . 80 : drop
`},
	{"NodePort", svc1(port.NodePort), clusterIP + `
@service-ips 192.168.7.11 . tcp . 30080 : goto pick-2
@masquerade-ips 192.168.7.11 . tcp . 30080 : goto masquerade-to-node
@endpoints-0 192.168.7.11 . tcp . 30080 : 10.180.0.1 . 8080
@endpoints-1 192.168.7.11 . tcp . 30080 : 10.180.2.1 . 8080
`},
	{"NodePort without endpoints", svc1(port.NodePort, port.ETPLocal, port.NoEndpoints), known + `
@no-endpoint-services 172.30.0.41 . tcp . 80 : goto reject-chain
@no-endpoint-services 192.168.7.11 . tcp . 30080 : goto reject-chain
`},
	{"load balancer, external policy Local", svc1(port.Balanced, port.ETPLocal), clusterIP + localUse0 + `
@service-ips 192.0.2.5 . tcp . 80 : goto external-local
@short-circuit-ips 192.0.2.5 . tcp . 80 : goto pick-2
@local-ips 192.0.2.5 . tcp . 80 : goto local-use-0
@masquerade-ips 192.0.2.5 . tcp . 80 : goto masquerade-if-from-node
@endpoints-0 192.0.2.5 . tcp . 80 : 10.180.0.1 . 8080
@endpoints-1 192.0.2.5 . tcp . 80 : 10.180.2.1 . 8080
@local-endpoints-0 192.0.2.5 . tcp . 80 : 10.180.0.1 . 8080
`},
	{"external IP, external policy Local, nothing here", svc1(port.ExternalIP, port.ETPLocal, port.RemoteOnly), known + use0 + `
@service-ips 172.30.0.41 . tcp . 80 : goto use-0
@endpoints-0 172.30.0.41 . tcp . 80 : 10.180.2.1 . 8080
@service-ips 203.0.113.9 . tcp . 80 : goto external-local
@short-circuit-ips 203.0.113.9 . tcp . 80 : goto use-0
@masquerade-ips 203.0.113.9 . tcp . 80 : goto masquerade-if-from-node
@endpoints-0 203.0.113.9 . tcp . 80 : 10.180.2.1 . 8080
@no-endpoint-services 203.0.113.9 . tcp . 80 : drop
`},
	{"internal policy Local with an external IP, nothing here", svc1(port.ExternalIP, port.ITPLocal, port.RemoteOnly), known + use0 + `
@no-endpoint-services 172.30.0.41 . tcp . 80 : drop
@service-ips 203.0.113.9 . tcp . 80 : goto use-0
@masquerade-ips 203.0.113.9 . tcp . 80 : goto masquerade-to-node
@endpoints-0 203.0.113.9 . tcp . 80 : 10.180.2.1 . 8080
`},
	{"source ranges, without endpoints", svc1(port.Balanced, port.NoEndpoints, port.Limited("198.51.100.0/24", "198.51.100.128/25")), known + `
@no-endpoint-services 172.30.0.41 . tcp . 80 : goto reject-chain
@no-endpoint-services 192.0.2.5 . tcp . 80 : goto reject-chain
@firewall-ips 192.0.2.5 . tcp . 80 : goto firewall-ULMVA6XW-ns1/svc1/tcp/p80
firewall-ULMVA6XW-ns1/svc1/tcp/p80 ip saddr != { 198.51.100.0/24 } drop
`},
	{"source ranges that admit the node", svc1(port.Balanced, port.NoEndpoints, port.Limited("192.168.0.0/16")), known + `
@no-endpoint-services 172.30.0.41 . tcp . 80 : goto reject-chain
@no-endpoint-services 192.0.2.5 . tcp . 80 : goto reject-chain
@firewall-ips 192.0.2.5 . tcp . 80 : goto firewall-ULMVA6XW-ns1/svc1/tcp/p80
firewall-ULMVA6XW-ns1/svc1/tcp/p80 ip saddr != { 192.168.0.0/16, 192.0.2.5/32 } drop
`},
	{"session affinity", svc1(port.RemoteOnly, port.Sticky), known + `
@service-ips 172.30.0.41 . tcp . 80 : goto service-ULMVA6XW-ns1/svc1/tcp/p80
service-ULMVA6XW-ns1/svc1/tcp/p80 ip saddr @AFFINITY goto ENDPOINT
service-ULMVA6XW-ns1/svc1/tcp/p80 numgen random mod 1 vmap { 0 : goto ENDPOINT }
ENDPOINT update @AFFINITY { ip saddr }
ENDPOINT meta l4proto tcp dnat to 10.180.2.1:8080
set AFFINITY 10s
`},
}

// TestFragments compares fragments with hand-written ones.
func TestFragments(t *testing.T) {
	node := netip.MustParseAddr("192.168.7.11")
	r := renderer{settings{family: lab.V4, nodePods: netip.MustParsePrefix("10.180.0.0/24"), nodeAddr: node},
		[]netip.Addr{node}}
	for _, c := range fragmentsCases {
		t.Run(c.name, func(t *testing.T) {
			l := newLedger()
			_, got := l.update(&model.State{Services: []*model.Service{c.svc}}, r)
			ep := c.svc.Ports[0].ID
			want := strings.NewReplacer(
				"AFFINITY", affinitySet(c.svc.Ports[0], netip.MustParseAddrPort("10.180.2.1:8080")),
				"ENDPOINT", endpointChain(ep, netip.MustParseAddrPort("10.180.2.1:8080")),
			).Replace(c.want)
			if g, w := lines(partsText(got)), lines(want); !slices.Equal(g, w) {
				t.Errorf("got (-), want (+)\n%s", difference(strings.Join(g, "\n"), strings.Join(w, "\n")))
			}
			if gone, _ := l.update(&model.State{}, r); len(lines(partsText(gone))) != len(lines(want)) {
				t.Errorf("what goes with the Service is not what came with it:\n%s", partsText(gone))
			}
		})
	}
}

// TestOneFrontendForTwo: of two Services that claim one address and port, the same one wins in any order of creation,
// and the other takes over when the winner is deleted. A ClusterIP takes precedence.
func TestOneFrontendForTwo(t *testing.T) {
	named := func(name, clusterIP string, change ...func(*model.Port)) *model.Service {
		s := svc1(append(change, port.RemoteOnly)...)
		s.Name, s.Ports[0].ID.Name, s.Ports[0].ClusterIP = name, name, netip.MustParseAddr(clusterIP)
		s.Ports[0].Cluster = []model.Endpoint{{Addr: netip.AddrPortFrom(s.Ports[0].ClusterIP, 8080)}} // to tell them apart
		return s
	}
	a, b := named("a", "172.30.0.1", port.ExternalIP), named("b", "172.30.0.2", port.ExternalIP)
	owner := named("owner", "203.0.113.9")
	r := renderer{settings: settings{family: lab.V4}}
	l := newLedger()
	for _, step := range []struct {
		services []*model.Service
		want     string
	}{
		{[]*model.Service{b}, "172.30.0.2"},
		{[]*model.Service{a, b}, "172.30.0.1"},
		{[]*model.Service{a, b, owner}, "203.0.113.9"},
		{[]*model.Service{a, b}, "172.30.0.1"},
		{[]*model.Service{b}, "172.30.0.2"},
	} {
		l.update(&model.State{Services: step.services}, r)
		var got []string
		for e := range l.elements.count {
			if e.In == everywhere.endpointMap(0) && e.Key == "203.0.113.9 . tcp . 80" {
				got = append(got, e.Value)
			}
		}
		if want := []string{step.want + " . 8080"}; !slices.Equal(got, want) {
			t.Errorf("%d Services: the frontend leads to %q, want %q", len(step.services), got, want)
		}
	}
}

// TestFrame: what does not depend on Services.
func TestFrame(t *testing.T) {
	pods := netip.MustParsePrefix("10.244.0.0/16")
	for _, c := range []struct {
		name  string
		frame settings
		chain string
		want  []string
	}{
		{"only dropped where the ranges are known", settings{}, "cluster-ips-check", []string{"ip daddr @cluster-ips reject"}},
		{"addresses of nobody", settings{services: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}, "cluster-ips-check",
			[]string{"ip daddr @cluster-ips reject", "ip daddr 10.96.0.0/16 drop"}},
		{"short cut for pods", settings{nodePods: pods}, chainExternalLocal, []string{
			"ip saddr 10.244.0.0/16 ip daddr . meta l4proto . th dport vmap @short-circuit-ips",
			"fib saddr type local ip daddr . meta l4proto . th dport vmap @short-circuit-ips",
			"ip daddr . meta l4proto . th dport vmap @local-ips",
		}},
		{"pods not known", settings{family: lab.V6}, chainExternalLocal, []string{
			"fib saddr type local ip6 daddr . meta l4proto . th dport vmap @short-circuit-ips",
			"ip6 daddr . meta l4proto . th dport vmap @local-ips",
		}},
	} {
		i := slices.IndexFunc(c.frame.chains(), func(ch nft.Chain) bool { return ch.Name == c.chain })
		if got := c.frame.chains()[i].Rules; got != strings.Join(c.want, "\n") {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, strings.Join(c.want, "\n"))
		}
	}
	const off = " daddr @cluster-ips ip saddr != 10.244.0.0/16 goto masquerade-to-node"
	for want, f := range map[string]settings{
		"ct original ip" + off: {podRange: pods},
		"ct original ip daddr @cluster-ips goto masquerade-to-node": {podRange: pods, masquerade: true},
	} {
		if got := f.masquerading(); !slices.Contains(got, want) {
			t.Errorf("no rule %q in\n%s", want, strings.Join(got, "\n"))
		}
	}
}

// partsText lists parts: "@map key : value", "chain rule", "set name time out". It omits the maps of endpoints.
func partsText(p nft.Parts) string {
	var b strings.Builder
	for _, e := range p.Elements {
		fmt.Fprintf(&b, "@%s %s", e.In, e.Key)
		if e.Value != "" {
			fmt.Fprintf(&b, " : %s", e.Value)
		}
		b.WriteByte('\n')
	}
	for _, c := range p.Chains {
		for _, rule := range strings.Split(c.Rules, "\n") {
			fmt.Fprintf(&b, "%s %s\n", c.Name, rule)
		}
	}
	for _, c := range p.Containers {
		if c.Timeout > 0 {
			fmt.Fprintf(&b, "set %s %v\n", c.Name, c.Timeout)
		}
	}
	return b.String()
}

// lines are the lines of a text without blank ones and repetitions, in order.
func lines(text string) []string {
	all := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
	slices.Sort(all)
	return slices.Compact(all)
}
