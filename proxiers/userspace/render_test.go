// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/internal/proxiers/proxiertest/port"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/proxiers/model"
)

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
		{"cluster IP", port.New(), nil, `
KUBE-PORTALS-CONTAINER ` + any1 + `-m tcp -p tcp -d 172.30.0.41 --dport 80 any
KUBE-PORTALS-HOST ` + any1 + `-m tcp -p tcp -d 172.30.0.41 --dport 80 any`},
		{"UDP", port.New(port.UDP), nil, `
KUBE-PORTALS-CONTAINER ` + any1 + `-m udp -p udp -d 172.30.0.41 --dport 80 any
KUBE-PORTALS-HOST ` + any1 + `-m udp -p udp -d 172.30.0.41 --dport 80 any`},
		{"nobody anywhere", port.New(port.NoEndpoints), nil, `
KUBE-PORTALS-REFUSED --comment "ns1/svc1:p80 cluster IP: no endpoints" -m tcp -p tcp -d 172.30.0.41 --dport 80 -j REJECT`},
		{"internal policy Local", port.New(port.ITPLocal), nil, `
KUBE-PORTALS-CONTAINER ` + own1 + `-m tcp -p tcp -d 172.30.0.41 --dport 80 own
KUBE-PORTALS-HOST ` + own1 + `-m tcp -p tcp -d 172.30.0.41 --dport 80 own`},
		{"internal policy Local, nobody here", port.New(port.ITPLocal, port.RemoteOnly), nil, `
KUBE-PORTALS-REFUSED --comment "ns1/svc1:p80 cluster IP: no endpoints" -m tcp -p tcp -d 172.30.0.41 --dport 80 -j DROP`},
		{"NodePort", port.New(port.NodePort), nil, `
KUBE-PORTALS-CONTAINER ` + any1 + `-m tcp -p tcp -d 172.30.0.41 --dport 80 any
KUBE-PORTALS-HOST ` + any1 + `-m tcp -p tcp -d 172.30.0.41 --dport 80 any
KUBE-NODEPORT-CONTAINER ` + any1 + `-m addrtype --dst-type LOCAL -m tcp -p tcp --dport 30080 any
KUBE-NODEPORT-HOST ` + any1 + `-m addrtype --dst-type LOCAL -m tcp -p tcp --dport 30080 any
KUBE-PORTALS-REFUSED --comment "ns1/svc1:p80 NodePort: not on this address" -m addrtype --dst-type LOCAL -m tcp -p tcp --dport 30080 -j REJECT`},
		{"NodePort on one address", port.New(port.NodePort), []netip.Addr{netip.MustParseAddr("192.168.7.11")}, `
KUBE-PORTALS-CONTAINER ` + any1 + `-m tcp -p tcp -d 172.30.0.41 --dport 80 any
KUBE-PORTALS-HOST ` + any1 + `-m tcp -p tcp -d 172.30.0.41 --dport 80 any
KUBE-NODEPORT-CONTAINER ` + any1 + `-m tcp -p tcp -d 192.168.7.11 --dport 30080 any
KUBE-NODEPORT-HOST ` + any1 + `-m tcp -p tcp -d 192.168.7.11 --dport 30080 any
KUBE-PORTALS-REFUSED --comment "ns1/svc1:p80 NodePort: not on this address" -m tcp -p tcp -d 192.168.7.11 --dport 30080 -j REJECT`},
		{"NodePort nobody serves", port.New(port.NodePort, port.NoEndpoints), nil, `
KUBE-PORTALS-REFUSED --comment "ns1/svc1:p80 cluster IP: no endpoints" -m tcp -p tcp -d 172.30.0.41 --dport 80 -j REJECT
KUBE-PORTALS-REFUSED --comment "ns1/svc1:p80 NodePort: no endpoints" -m addrtype --dst-type LOCAL -m tcp -p tcp --dport 30080 -j REJECT`},
		{"external policy Local", port.New(port.NodePort, port.ETPLocal, port.HealthCheck), nil, `
KUBE-PORTALS-CONTAINER ` + any1 + `-m tcp -p tcp -d 172.30.0.41 --dport 80 any
KUBE-PORTALS-HOST ` + any1 + `-m tcp -p tcp -d 172.30.0.41 --dport 80 any
KUBE-NODEPORT-CONTAINER ` + any1 + `-m addrtype --dst-type LOCAL -m tcp -p tcp --dport 30080 -s 10.0.0.0/8 any
KUBE-NODEPORT-CONTAINER ` + own1 + `-m addrtype --dst-type LOCAL -m tcp -p tcp --dport 30080 own
KUBE-NODEPORT-HOST ` + any1 + `-m addrtype --dst-type LOCAL -m tcp -p tcp --dport 30080 any
KUBE-PORTALS-REFUSED --comment "ns1/svc1:p80 NodePort: not on this address" -m addrtype --dst-type LOCAL -m tcp -p tcp --dport 30080 -j REJECT
KUBE-PORTALS-INPUT --comment "ns1/svc1:p80 health check NodePort" -m tcp -p tcp --dport 30081 -j ACCEPT`},
		{"external policy Local, nobody here", port.New(port.ExternalIP, port.ETPLocal, port.RemoteOnly), nil, `
KUBE-PORTALS-CONTAINER ` + any1 + `-m tcp -p tcp -d 172.30.0.41 --dport 80 any
KUBE-PORTALS-CONTAINER ` + any1 + `-m tcp -p tcp -d 203.0.113.9 --dport 80 -s 10.0.0.0/8 any
KUBE-PORTALS-HOST ` + any1 + `-m tcp -p tcp -d 172.30.0.41 --dport 80 any
KUBE-PORTALS-HOST ` + any1 + `-m tcp -p tcp -d 203.0.113.9 --dport 80 any
KUBE-PORTALS-REFUSED --comment "ns1/svc1:p80 external IP: no endpoints" -m tcp -p tcp -d 203.0.113.9 --dport 80 -j DROP`},
		{"source ranges", port.New(port.Balanced, port.Limited("198.51.100.0/24", "10.1.0.0/16")), nil, `
KUBE-PORTALS-CONTAINER ` + any1 + `-m tcp -p tcp -d 172.30.0.41 --dport 80 any
KUBE-PORTALS-CONTAINER ` + any1 + `-m tcp -p tcp -d 192.0.2.5 --dport 80 -s 198.51.100.0/24 any
KUBE-PORTALS-CONTAINER ` + any1 + `-m tcp -p tcp -d 192.0.2.5 --dport 80 -s 10.1.0.0/16 any
KUBE-PORTALS-HOST ` + any1 + `-m tcp -p tcp -d 172.30.0.41 --dport 80 any
KUBE-PORTALS-HOST ` + any1 + `-m tcp -p tcp -d 192.0.2.5 --dport 80 -s 198.51.100.0/24 any
KUBE-PORTALS-HOST ` + any1 + `-m tcp -p tcp -d 192.0.2.5 --dport 80 -s 10.1.0.0/16 any
KUBE-PORTALS-REFUSED --comment "ns1/svc1:p80 load balancer IP: not for this source" -m tcp -p tcp -d 192.0.2.5 --dport 80 -j DROP`},
		{"source ranges, external policy Local", port.New(port.Balanced, port.ETPLocal, port.Limited("198.51.100.0/24", "10.1.0.0/16")), nil, `
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
			r := renderer{nodePods: netip.MustParsePrefix("10.0.0.0/8")}
			var f xtables.Fragment
			r.port(&f, c.port, waysOf(c.port), claimsOf(c.port, c.addrs, lab.V4))
			var got []string
			for ch, name := range chainNames {
				for _, rule := range f.Shared[ch] {
					text := strings.TrimPrefix(string(rule), "-m comment ")
					text = strings.ReplaceAll(text, "-j DNAT --to-destination 169.254.118.1:1", "any")
					text = strings.ReplaceAll(text, "-j DNAT --to-destination 169.254.118.1:2", "own")
					got = append(got, name+" "+text)
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
	cluster, local := p.Used()
	if len(cluster) > 0 {
		w.cluster = netip.AddrPortFrom(relayAddrs[lab.V4], 1)
	}
	if len(local) > 0 {
		w.local = netip.AddrPortFrom(relayAddrs[lab.V4], 2)
	}
	return w
}

func TestDeltaIsSmall(t *testing.T) {
	r := renderer{nodePods: netip.MustParsePrefix("10.0.0.0/8")}
	render := func(p *model.Port) *xtables.Fragment {
		f := &xtables.Fragment{}
		r.port(f, p, waysOf(p), claimsOf(p, nil, lab.V4))
		return f
	}
	for _, c := range []struct {
		name       string
		before     *model.Port
		after      *model.Port
		adds, dels int
	}{
		{"another endpoint", port.New(port.NodePort), port.New(port.NodePort, port.RemoteOnly), 0, 0},
		{"the last endpoint goes", port.New(), port.New(port.NoEndpoints), 1, 2},
		{"a NodePort comes", port.New(), port.New(port.NodePort), 3, 0},
	} {
		script := string(xtables.Script(layout(lab.V4, false).Delta([]kit.Swap[*xtables.Fragment]{{Old: render(c.before), New: render(c.after)}}).Transactions(xtables.NFTables)...))
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
	if len(got) != 1 || got[clusterWay(port.New().ID)] != 40001 {
		t.Errorf("got %v, want ns1/svc1:p80 at 40001", got)
	}
}
