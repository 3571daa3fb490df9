package userspace

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/proxiers/internal/xtables"
	"github.com/viplab/viplab/proxiers/model"
)

// The port that the tests change: ns1/svc1:p80 with two endpoints, the first of them on the node.
func svc1(change ...func(*model.Port)) *model.Port {
	p := &model.Port{
		ID:        model.PortID{Namespace: "ns1", Name: "svc1", Port: "p80", Protocol: corev1.ProtocolTCP},
		Number:    80,
		ClusterIP: netip.MustParseAddr("172.30.0.41"),
	}
	behind(p, model.Endpoint{Addr: netip.MustParseAddrPort("10.180.0.1:80"), OnNode: true},
		model.Endpoint{Addr: netip.MustParseAddrPort("10.180.2.1:80")})
	for _, c := range change {
		c(p)
	}
	return p
}

func behind(p *model.Port, all ...model.Endpoint) {
	p.Cluster, p.Local, p.Anywhere = all, nil, len(all) > 0
	for _, e := range all {
		if e.OnNode {
			p.Local = append(p.Local, e)
		}
	}
}

func noEndpoints(p *model.Port) { behind(p) }
func remoteOnly(p *model.Port)  { behind(p, p.Cluster[1]) }
func nodePort(p *model.Port)    { p.NodePort = 30080 }
func udp(p *model.Port)         { p.ID.Protocol = corev1.ProtocolUDP }
func etpLocal(p *model.Port)    { p.ExternalLocal = true }
func itpLocal(p *model.Port)    { p.InternalLocal = true }
func health(p *model.Port)      { p.HealthCheckPort = 30081 }
func externalIP(p *model.Port)  { p.ExternalIPs = []netip.Addr{netip.MustParseAddr("203.0.113.9")} }
func balanced(p *model.Port)    { p.LoadBalancerIPs = []netip.Addr{netip.MustParseAddr("192.0.2.5")} }
func limited(ranges ...string) func(*model.Port) {
	return func(p *model.Port) {
		for _, r := range ranges {
			p.SourceRanges = append(p.SourceRanges, netip.MustParsePrefix(r))
		}
	}
}

// TestRules holds the rules of Services in all situations. "any" and "own" stand for the target that leads to the relay
// for all endpoints, and for those of the node.
func TestRules(t *testing.T) {
	const (
		any1 = `--comment "ns1/svc1:p80 -> any endpoint" `
		own1 = `--comment "ns1/svc1:p80 -> endpoint of this node" `
	)
	for _, c := range []struct {
		name  string
		port  *model.Port
		addrs []netip.Addr
		want  string
	}{
		{"cluster IP", svc1(), nil, `
KUBE-PORTALS-CONTAINER ` + any1 + `-m tcp -p tcp -d 172.30.0.41 --dport 80 any
KUBE-PORTALS-HOST ` + any1 + `-m tcp -p tcp -d 172.30.0.41 --dport 80 any`},
		{"UDP", svc1(udp), nil, `
KUBE-PORTALS-CONTAINER ` + any1 + `-m udp -p udp -d 172.30.0.41 --dport 80 any
KUBE-PORTALS-HOST ` + any1 + `-m udp -p udp -d 172.30.0.41 --dport 80 any`},
		{"nobody anywhere", svc1(noEndpoints), nil, `
KUBE-PORTALS-REFUSED --comment "ns1/svc1:p80 cluster IP: no endpoints" -m tcp -p tcp -d 172.30.0.41 --dport 80 -j REJECT`},
		{"internal policy Local", svc1(itpLocal), nil, `
KUBE-PORTALS-CONTAINER ` + own1 + `-m tcp -p tcp -d 172.30.0.41 --dport 80 own
KUBE-PORTALS-HOST ` + own1 + `-m tcp -p tcp -d 172.30.0.41 --dport 80 own`},
		{"internal policy Local, nobody here", svc1(itpLocal, remoteOnly), nil, `
KUBE-PORTALS-REFUSED --comment "ns1/svc1:p80 cluster IP: no endpoints" -m tcp -p tcp -d 172.30.0.41 --dport 80 -j DROP`},
		{"NodePort", svc1(nodePort), nil, `
KUBE-PORTALS-CONTAINER ` + any1 + `-m tcp -p tcp -d 172.30.0.41 --dport 80 any
KUBE-PORTALS-HOST ` + any1 + `-m tcp -p tcp -d 172.30.0.41 --dport 80 any
KUBE-NODEPORT-CONTAINER ` + any1 + `-m addrtype --dst-type LOCAL -m tcp -p tcp --dport 30080 any
KUBE-NODEPORT-HOST ` + any1 + `-m addrtype --dst-type LOCAL -m tcp -p tcp --dport 30080 any
KUBE-PORTALS-REFUSED --comment "ns1/svc1:p80 NodePort: not on this address" -m addrtype --dst-type LOCAL -m tcp -p tcp --dport 30080 -j REJECT`},
		{"NodePort on one address", svc1(nodePort), []netip.Addr{netip.MustParseAddr("192.168.7.11")}, `
KUBE-PORTALS-CONTAINER ` + any1 + `-m tcp -p tcp -d 172.30.0.41 --dport 80 any
KUBE-PORTALS-HOST ` + any1 + `-m tcp -p tcp -d 172.30.0.41 --dport 80 any
KUBE-NODEPORT-CONTAINER ` + any1 + `-m tcp -p tcp -d 192.168.7.11 --dport 30080 any
KUBE-NODEPORT-HOST ` + any1 + `-m tcp -p tcp -d 192.168.7.11 --dport 30080 any
KUBE-PORTALS-REFUSED --comment "ns1/svc1:p80 NodePort: not on this address" -m tcp -p tcp -d 192.168.7.11 --dport 30080 -j REJECT`},
		{"NodePort nobody serves", svc1(nodePort, noEndpoints), nil, `
KUBE-PORTALS-REFUSED --comment "ns1/svc1:p80 cluster IP: no endpoints" -m tcp -p tcp -d 172.30.0.41 --dport 80 -j REJECT
KUBE-PORTALS-REFUSED --comment "ns1/svc1:p80 NodePort: no endpoints" -m addrtype --dst-type LOCAL -m tcp -p tcp --dport 30080 -j REJECT`},
		{"external policy Local", svc1(nodePort, etpLocal, health), nil, `
KUBE-PORTALS-CONTAINER ` + any1 + `-m tcp -p tcp -d 172.30.0.41 --dport 80 any
KUBE-PORTALS-HOST ` + any1 + `-m tcp -p tcp -d 172.30.0.41 --dport 80 any
KUBE-NODEPORT-CONTAINER ` + any1 + `-m addrtype --dst-type LOCAL -m tcp -p tcp --dport 30080 -s 10.0.0.0/8 any
KUBE-NODEPORT-CONTAINER ` + own1 + `-m addrtype --dst-type LOCAL -m tcp -p tcp --dport 30080 own
KUBE-NODEPORT-HOST ` + any1 + `-m addrtype --dst-type LOCAL -m tcp -p tcp --dport 30080 any
KUBE-PORTALS-REFUSED --comment "ns1/svc1:p80 NodePort: not on this address" -m addrtype --dst-type LOCAL -m tcp -p tcp --dport 30080 -j REJECT
KUBE-PORTALS-INPUT --comment "ns1/svc1:p80 health check NodePort" -m tcp -p tcp --dport 30081 -j ACCEPT`},
		{"external policy Local, nobody here", svc1(externalIP, etpLocal, remoteOnly), nil, `
KUBE-PORTALS-CONTAINER ` + any1 + `-m tcp -p tcp -d 172.30.0.41 --dport 80 any
KUBE-PORTALS-CONTAINER ` + any1 + `-m tcp -p tcp -d 203.0.113.9 --dport 80 -s 10.0.0.0/8 any
KUBE-PORTALS-HOST ` + any1 + `-m tcp -p tcp -d 172.30.0.41 --dport 80 any
KUBE-PORTALS-HOST ` + any1 + `-m tcp -p tcp -d 203.0.113.9 --dport 80 any
KUBE-PORTALS-REFUSED --comment "ns1/svc1:p80 external IP: no endpoints" -m tcp -p tcp -d 203.0.113.9 --dport 80 -j DROP`},
		{"source ranges", svc1(balanced, limited("198.51.100.0/24", "10.1.0.0/16")), nil, `
KUBE-PORTALS-CONTAINER ` + any1 + `-m tcp -p tcp -d 172.30.0.41 --dport 80 any
KUBE-PORTALS-CONTAINER ` + any1 + `-m tcp -p tcp -d 192.0.2.5 --dport 80 -s 198.51.100.0/24 any
KUBE-PORTALS-CONTAINER ` + any1 + `-m tcp -p tcp -d 192.0.2.5 --dport 80 -s 10.1.0.0/16 any
KUBE-PORTALS-HOST ` + any1 + `-m tcp -p tcp -d 172.30.0.41 --dport 80 any
KUBE-PORTALS-HOST ` + any1 + `-m tcp -p tcp -d 192.0.2.5 --dport 80 -s 198.51.100.0/24 any
KUBE-PORTALS-HOST ` + any1 + `-m tcp -p tcp -d 192.0.2.5 --dport 80 -s 10.1.0.0/16 any
KUBE-PORTALS-REFUSED --comment "ns1/svc1:p80 load balancer IP: not for this source" -m tcp -p tcp -d 192.0.2.5 --dport 80 -j DROP`},
		{"source ranges, external policy Local", svc1(balanced, etpLocal, limited("198.51.100.0/24", "10.1.0.0/16")), nil, `
KUBE-PORTALS-CONTAINER ` + any1 + `-m tcp -p tcp -d 172.30.0.41 --dport 80 any
KUBE-PORTALS-CONTAINER ` + any1 + `-m tcp -p tcp -d 192.0.2.5 --dport 80 -s 10.1.0.0/16 any
KUBE-PORTALS-CONTAINER ` + own1 + `-m tcp -p tcp -d 192.0.2.5 --dport 80 -s 198.51.100.0/24 own
KUBE-PORTALS-CONTAINER ` + own1 + `-m tcp -p tcp -d 192.0.2.5 --dport 80 -s 10.1.0.0/16 own
KUBE-PORTALS-HOST ` + any1 + `-m tcp -p tcp -d 172.30.0.41 --dport 80 any
KUBE-PORTALS-HOST ` + any1 + `-m tcp -p tcp -d 192.0.2.5 --dport 80 -s 198.51.100.0/24 any
KUBE-PORTALS-HOST ` + any1 + `-m tcp -p tcp -d 192.0.2.5 --dport 80 -s 10.1.0.0/16 any
KUBE-PORTALS-REFUSED --comment "ns1/svc1:p80 load balancer IP: not for this source" -m tcp -p tcp -d 192.0.2.5 --dport 80 -j DROP`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := renderer{podRange: netip.MustParsePrefix("10.0.0.0/8")}
			var f fragment
			r.port(&f, c.port, waysOf(c.port), claimsOf(c.port, c.addrs, lab.V4))
			var got []string
			for ch := range chains {
				for _, rule := range f[ch] {
					text := strings.TrimPrefix(string(rule), "-m comment ")
					text = strings.ReplaceAll(text, "-j DNAT --to-destination 169.254.118.1:1", "any")
					text = strings.ReplaceAll(text, "-j DNAT --to-destination 169.254.118.1:2", "own")
					got = append(got, ch.name()+" "+text)
				}
			}
			if want := strings.Split(strings.TrimSpace(c.want), "\n"); !slices.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// waysOf pretends that the relays of a port which have endpoints are open: on port 1 for all, 2 for those of the node.
func waysOf(p *model.Port) (w ways) {
	if len(clusterEndpoints(p)) > 0 {
		w.cluster = netip.AddrPortFrom(relayAddrs[lab.V4], 1)
	}
	if len(localEndpoints(p)) > 0 {
		w.local = netip.AddrPortFrom(relayAddrs[lab.V4], 2)
	}
	return w
}

func TestDeltaIsSmall(t *testing.T) {
	r := renderer{podRange: netip.MustParsePrefix("10.0.0.0/8")}
	render := func(p *model.Port) *fragment {
		f := &fragment{}
		r.port(f, p, waysOf(p), claimsOf(p, nil, lab.V4))
		return f
	}
	for _, c := range []struct {
		name       string
		before     *model.Port
		after      *model.Port
		adds, dels int
	}{
		{"another endpoint", svc1(nodePort), svc1(nodePort, remoteOnly), 0, 0},
		{"the last endpoint goes", svc1(), svc1(noEndpoints), 1, 2},
		{"a NodePort comes", svc1(), svc1(nodePort), 3, 0},
	} {
		script := string(xtables.Script(delta([]swap{{render(c.before), render(c.after)}}).transactions()...))
		if adds, dels := strings.Count(script, "-A "), strings.Count(script, "-D "); adds != c.adds || dels != c.dels {
			t.Errorf("%s: %d rules come and %d go, not %d and %d:\n%s", c.name, adds, dels, c.adds, c.dels, script)
		}
	}
}

func TestFormerPorts(t *testing.T) {
	nat := &xtables.Saved{Chains: map[string][]xtables.Rule{
		"KUBE-PORTALS-HOST": {
			`-d 172.30.0.41/32 -p tcp -m comment --comment "ns1/svc1:p80 -> any endpoint" -m tcp --dport 80 -j DNAT --to-destination 169.254.118.1:40001`,
			`-d 172.30.0.42/32 -p tcp -m comment --comment "ns1/svc2 -> any endpoint" -m tcp --dport 80 -j DNAT --to-destination 192.168.7.11:40002`,
		},
		"OTHERS": {`-m comment --comment "x -> any endpoint" -j DNAT --to-destination 169.254.118.1:40003`},
	}}
	got := formerPorts(nat, relayAddrs[lab.V4])
	if len(got) != 1 || got[clusterWay(svc1().ID)] != 40001 {
		t.Errorf("got %v, want ns1/svc1:p80 at 40001", got)
	}
}
