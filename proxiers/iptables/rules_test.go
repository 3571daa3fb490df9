// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/viplab/viplab/internal/proxiers/dnat"
	"github.com/viplab/viplab/internal/proxiers/proxiertest/port"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/proxiers/model"
)

func TestProbabilities(t *testing.T) {
	for n, want := range map[int]string{2: "0.5000000000", 3: "0.3333333333", 7: "0.1428571429"} {
		if got := xtables.OneIn(n); !strings.HasSuffix(string(got), "--probability "+want) {
			t.Errorf("one in %d: got %q, want %s", n, got, want)
		}
	}
}

// Common parts of the expected rules.
const (
	bothSEPs = `
nat KUBE-SEP-SXIVWICOYRO3J4NJ -m comment --comment ns1/svc1:p80 -s 10.180.0.1 -j KUBE-MARK-MASQ
nat KUBE-SEP-SXIVWICOYRO3J4NJ -m comment --comment ns1/svc1:p80 -m tcp -p tcp -j DNAT --to-destination 10.180.0.1:80
nat KUBE-SEP-ZX7GRIZKSNUQ3LAJ -m comment --comment ns1/svc1:p80 -s 10.180.2.1 -j KUBE-MARK-MASQ
nat KUBE-SEP-ZX7GRIZKSNUQ3LAJ -m comment --comment ns1/svc1:p80 -m tcp -p tcp -j DNAT --to-destination 10.180.2.1:80
`
	captureClusterIP = `
nat KUBE-SERVICES -m comment --comment "ns1/svc1:p80 cluster IP" -m tcp -p tcp -d 172.30.0.41 --dport 80 -j KUBE-SVC-XPGD46QRK7WJZT7O
`
	clusterChain = `
nat KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment "ns1/svc1:p80 cluster IP" -m tcp -p tcp -d 172.30.0.41 --dport 80 ! -s 10.0.0.0/8 -j KUBE-MARK-MASQ
nat KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment "ns1/svc1:p80 -> 10.180.0.1:80" -m statistic --mode random --probability 0.5000000000 -j KUBE-SEP-SXIVWICOYRO3J4NJ
nat KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment "ns1/svc1:p80 -> 10.180.2.1:80" -j KUBE-SEP-ZX7GRIZKSNUQ3LAJ
`
	shortCut = `
nat KUBE-EXT-XPGD46QRK7WJZT7O -m comment --comment "pod traffic for ns1/svc1:p80 external destinations" -s 10.180.0.0/24 -j KUBE-SVC-XPGD46QRK7WJZT7O
nat KUBE-EXT-XPGD46QRK7WJZT7O -m comment --comment "masquerade LOCAL traffic for ns1/svc1:p80 external destinations" -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ
nat KUBE-EXT-XPGD46QRK7WJZT7O -m comment --comment "route LOCAL traffic for ns1/svc1:p80 external destinations" -m addrtype --src-type LOCAL -j KUBE-SVC-XPGD46QRK7WJZT7O
`
	masqueraded = `
nat KUBE-EXT-XPGD46QRK7WJZT7O -m comment --comment "masquerade traffic for ns1/svc1:p80 external destinations" -j KUBE-MARK-MASQ
nat KUBE-EXT-XPGD46QRK7WJZT7O -j KUBE-SVC-XPGD46QRK7WJZT7O
`
	captureNodePort = `
nat KUBE-NODEPORTS -m comment --comment ns1/svc1:p80 -m tcp -p tcp --dport 30080 -j KUBE-EXT-XPGD46QRK7WJZT7O
`
)

// TestServiceRules compares with rules written by hand, in the order of chains.
func TestServiceRules(t *testing.T) {
	pods := renderer{
		chains:   dnat.Chains{NodePods: netip.MustParsePrefix("10.180.0.0/24")},
		podRange: netip.MustParsePrefix("10.0.0.0/8"),
		nodeAddr: netip.MustParseAddr("192.168.7.11"),
	}
	terse := renderer{podRange: pods.podRange, chains: dnat.Chains{Terse: true}}
	for _, c := range []struct {
		name string
		r    renderer
		svc  *model.Service
		want string
	}{
		{"ClusterIP", pods, port.Service(), captureClusterIP + clusterChain + bothSEPs},
		{"ClusterIP without endpoints", pods, port.Service(port.NoEndpoints), `
filter KUBE-SERVICES -m comment --comment "ns1/svc1:p80 has no endpoints" -m tcp -p tcp -d 172.30.0.41 --dport 80 -j REJECT
`},
		{"internal policy Local, nothing here", pods, port.Service(port.ITPLocal, port.RemoteOnly), `
filter KUBE-SERVICES -m comment --comment "ns1/svc1:p80 has no local endpoints" -m tcp -p tcp -d 172.30.0.41 --dport 80 -j DROP
`},
		{"internal policy Local", pods, port.Service(port.ITPLocal), `
nat KUBE-SERVICES -m comment --comment "ns1/svc1:p80 cluster IP" -m tcp -p tcp -d 172.30.0.41 --dport 80 -j KUBE-SVL-XPGD46QRK7WJZT7O
nat KUBE-SVL-XPGD46QRK7WJZT7O -m comment --comment "ns1/svc1:p80 cluster IP" -m tcp -p tcp -d 172.30.0.41 --dport 80 ! -s 10.0.0.0/8 -j KUBE-MARK-MASQ
nat KUBE-SVL-XPGD46QRK7WJZT7O -m comment --comment "ns1/svc1:p80 -> 10.180.0.1:80" -j KUBE-SEP-SXIVWICOYRO3J4NJ
nat KUBE-SEP-SXIVWICOYRO3J4NJ -m comment --comment ns1/svc1:p80 -s 10.180.0.1 -j KUBE-MARK-MASQ
nat KUBE-SEP-SXIVWICOYRO3J4NJ -m comment --comment ns1/svc1:p80 -m tcp -p tcp -j DNAT --to-destination 10.180.0.1:80
`},
		{"NodePort", pods, port.Service(port.NodePort), captureClusterIP + captureNodePort + masqueraded + clusterChain +
			bothSEPs},
		{"NodePort without endpoints", pods, port.Service(port.NodePort, port.ETPLocal, port.NoEndpoints), `
filter KUBE-SERVICES -m comment --comment "ns1/svc1:p80 has no endpoints" -m tcp -p tcp -d 172.30.0.41 --dport 80 -j REJECT
filter KUBE-EXTERNAL-SERVICES -m comment --comment "ns1/svc1:p80 has no endpoints" -m addrtype --dst-type LOCAL -m tcp -p tcp --dport 30080 -j REJECT
`},
		{"NodePort, external policy Local", pods, port.Service(port.NodePort, port.ETPLocal), captureClusterIP + captureNodePort + shortCut + `
nat KUBE-EXT-XPGD46QRK7WJZT7O -j KUBE-SVL-XPGD46QRK7WJZT7O
` + clusterChain + `
nat KUBE-SVL-XPGD46QRK7WJZT7O -m comment --comment "ns1/svc1:p80 -> 10.180.0.1:80" -j KUBE-SEP-SXIVWICOYRO3J4NJ
` + bothSEPs},
		{"all frontends, external policy Local, nothing here", pods, port.Service(port.NodePort, port.ETPLocal, port.ExternalIP, port.Balanced, port.RemoteOnly), captureClusterIP + `
nat KUBE-SERVICES -m comment --comment "ns1/svc1:p80 external IP" -m tcp -p tcp -d 203.0.113.9 --dport 80 -j KUBE-EXT-XPGD46QRK7WJZT7O
nat KUBE-SERVICES -m comment --comment "ns1/svc1:p80 loadbalancer IP" -m tcp -p tcp -d 192.0.2.5 --dport 80 -j KUBE-EXT-XPGD46QRK7WJZT7O
` + captureNodePort + shortCut + `
nat KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment "ns1/svc1:p80 cluster IP" -m tcp -p tcp -d 172.30.0.41 --dport 80 ! -s 10.0.0.0/8 -j KUBE-MARK-MASQ
nat KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment "ns1/svc1:p80 -> 10.180.2.1:80" -j KUBE-SEP-ZX7GRIZKSNUQ3LAJ
nat KUBE-SEP-ZX7GRIZKSNUQ3LAJ -m comment --comment ns1/svc1:p80 -s 10.180.2.1 -j KUBE-MARK-MASQ
nat KUBE-SEP-ZX7GRIZKSNUQ3LAJ -m comment --comment ns1/svc1:p80 -m tcp -p tcp -j DNAT --to-destination 10.180.2.1:80
filter KUBE-EXTERNAL-SERVICES -m comment --comment "ns1/svc1:p80 has no local endpoints" -m tcp -p tcp -d 203.0.113.9 --dport 80 -j DROP
filter KUBE-EXTERNAL-SERVICES -m comment --comment "ns1/svc1:p80 has no local endpoints" -m tcp -p tcp -d 192.0.2.5 --dport 80 -j DROP
filter KUBE-EXTERNAL-SERVICES -m comment --comment "ns1/svc1:p80 has no local endpoints" -m addrtype --dst-type LOCAL -m tcp -p tcp --dport 30080 -j DROP
`},
		{"internal policy Local with a NodePort, nothing here", pods, port.Service(port.NodePort, port.ITPLocal, port.RemoteOnly), captureNodePort + masqueraded + `
nat KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment "ns1/svc1:p80 -> 10.180.2.1:80" -j KUBE-SEP-ZX7GRIZKSNUQ3LAJ
nat KUBE-SEP-ZX7GRIZKSNUQ3LAJ -m comment --comment ns1/svc1:p80 -s 10.180.2.1 -j KUBE-MARK-MASQ
nat KUBE-SEP-ZX7GRIZKSNUQ3LAJ -m comment --comment ns1/svc1:p80 -m tcp -p tcp -j DNAT --to-destination 10.180.2.1:80
filter KUBE-SERVICES -m comment --comment "ns1/svc1:p80 has no local endpoints" -m tcp -p tcp -d 172.30.0.41 --dport 80 -j DROP
`},
		{"source ranges", pods, port.Service(port.Balanced, port.Limited("198.51.100.0/24", "192.168.7.0/24")), captureClusterIP + `
nat KUBE-SERVICES -m comment --comment "ns1/svc1:p80 loadbalancer IP" -m tcp -p tcp -d 192.0.2.5 --dport 80 -j KUBE-FW-XPGD46QRK7WJZT7O
` + masqueraded + `
nat KUBE-FW-XPGD46QRK7WJZT7O -m comment --comment "ns1/svc1:p80 loadbalancer IP" -s 198.51.100.0/24 -j KUBE-EXT-XPGD46QRK7WJZT7O
nat KUBE-FW-XPGD46QRK7WJZT7O -m comment --comment "ns1/svc1:p80 loadbalancer IP" -s 192.168.7.0/24 -j KUBE-EXT-XPGD46QRK7WJZT7O
nat KUBE-FW-XPGD46QRK7WJZT7O -m comment --comment "ns1/svc1:p80 loadbalancer IP" -s 192.0.2.5/32 -j KUBE-EXT-XPGD46QRK7WJZT7O
nat KUBE-FW-XPGD46QRK7WJZT7O -m comment --comment "other traffic to ns1/svc1:p80 will be dropped by KUBE-PROXY-FIREWALL"
` + clusterChain + bothSEPs + `
filter KUBE-PROXY-FIREWALL -m comment --comment "ns1/svc1:p80 traffic not accepted by KUBE-FW-XPGD46QRK7WJZT7O" -m tcp -p tcp -d 192.0.2.5 --dport 80 -j DROP
`},
		{"source ranges without endpoints", pods, port.Service(port.Balanced, port.Limited("198.51.100.0/24"), port.NoEndpoints), `
filter KUBE-SERVICES -m comment --comment "ns1/svc1:p80 has no endpoints" -m tcp -p tcp -d 172.30.0.41 --dport 80 -j REJECT
filter KUBE-EXTERNAL-SERVICES -m comment --comment "ns1/svc1:p80 has no endpoints" -m tcp -p tcp -d 192.0.2.5 --dport 80 -j REJECT
`},
		{"one address twice", pods, port.Service(port.NoEndpoints, port.ExternalIP, func(p *model.Port) { p.LoadBalancerIPs = p.ExternalIPs }), `
filter KUBE-SERVICES -m comment --comment "ns1/svc1:p80 has no endpoints" -m tcp -p tcp -d 172.30.0.41 --dport 80 -j REJECT
filter KUBE-EXTERNAL-SERVICES -m comment --comment "ns1/svc1:p80 has no endpoints" -m tcp -p tcp -d 203.0.113.9 --dport 80 -j REJECT
`},
		{"health check port", pods, port.Service(port.NoEndpoints, func(p *model.Port) { p.HealthCheckPort = 32000 }), `
filter KUBE-SERVICES -m comment --comment "ns1/svc1:p80 has no endpoints" -m tcp -p tcp -d 172.30.0.41 --dport 80 -j REJECT
filter KUBE-NODEPORTS -m comment --comment "ns1/svc1:p80 health check node port" -m tcp -p tcp --dport 32000 -j ACCEPT
`},
		{"session affinity", renderer{}, port.Service(port.RemoteOnly, port.Sticky), captureClusterIP + `
nat KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment "ns1/svc1:p80 -> 10.180.2.1:80" -m set --match-set KUBE-SEP-ZX7GRIZKSNUQ3LAJ src -j KUBE-SEP-ZX7GRIZKSNUQ3LAJ
nat KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment "ns1/svc1:p80 -> 10.180.2.1:80" -j KUBE-SEP-ZX7GRIZKSNUQ3LAJ
nat KUBE-SEP-ZX7GRIZKSNUQ3LAJ -m comment --comment ns1/svc1:p80 -s 10.180.2.1 -j KUBE-MARK-MASQ
nat KUBE-SEP-ZX7GRIZKSNUQ3LAJ -m comment --comment ns1/svc1:p80 -j SET --add-set KUBE-SEP-ZX7GRIZKSNUQ3LAJ src --exist
nat KUBE-SEP-ZX7GRIZKSNUQ3LAJ -m comment --comment ns1/svc1:p80 -m tcp -p tcp -j DNAT --to-destination 10.180.2.1:80
`},
		{"among many endpoints", terse, port.Service(port.RemoteOnly), captureClusterIP + `
nat KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment "ns1/svc1:p80 cluster IP" -m tcp -p tcp -d 172.30.0.41 --dport 80 ! -s 10.0.0.0/8 -j KUBE-MARK-MASQ
nat KUBE-SVC-XPGD46QRK7WJZT7O -j KUBE-SEP-ZX7GRIZKSNUQ3LAJ
nat KUBE-SEP-ZX7GRIZKSNUQ3LAJ -s 10.180.2.1 -j KUBE-MARK-MASQ
nat KUBE-SEP-ZX7GRIZKSNUQ3LAJ -m tcp -p tcp -j DNAT --to-destination 10.180.2.1:80
`},
		{"masquerade all", renderer{podRange: pods.podRange, masqueradeAll: true}, port.Service(port.RemoteOnly), captureClusterIP + `
nat KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment "ns1/svc1:p80 cluster IP" -m tcp -p tcp -d 172.30.0.41 --dport 80 -j KUBE-MARK-MASQ
nat KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment "ns1/svc1:p80 -> 10.180.2.1:80" -j KUBE-SEP-ZX7GRIZKSNUQ3LAJ
nat KUBE-SEP-ZX7GRIZKSNUQ3LAJ -m comment --comment ns1/svc1:p80 -s 10.180.2.1 -j KUBE-MARK-MASQ
nat KUBE-SEP-ZX7GRIZKSNUQ3LAJ -m comment --comment ns1/svc1:p80 -m tcp -p tcp -j DNAT --to-destination 10.180.2.1:80
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			compare(t, fragmentText(c.r.render(c.svc)), c.want)
		})
	}
}

// TestNodeRules: what does not depend on Services.
func TestNodeRules(t *testing.T) {
	n := &nodeRules{family: lab.V4, mark: 0x4000, localhost: true, randomFully: true,
		podRange: netip.MustParsePrefix("10.180.0.0/16")}
	compare(t, chainText("filter", n.filterChains())+chainText("nat", n.natChains()), `
filter KUBE-INVALID -s 10.180.0.0/16 -m conntrack --ctstate INVALID -j DROP
filter KUBE-FORWARD -s 10.180.0.0/16 -m conntrack --ctstate INVALID -j DROP
filter KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark 0x4000/0x4000 -j ACCEPT
filter KUBE-FORWARD -m comment --comment "kubernetes forwarding conntrack rule" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
filter KUBE-FIREWALL -m comment --comment "block incoming localnet connections" -d 127.0.0.0/8 ! -s 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
nat KUBE-MARK-MASQ -j MARK --or-mark 0x4000
nat KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
nat KUBE-POSTROUTING -j MARK --xor-mark 0x4000
nat KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully
`)
	compare(t, chainText("filter", (&nodeRules{family: lab.V6, mark: 0x4000, liberal: true}).filterChains()), `
filter KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark 0x4000/0x4000 -j ACCEPT
filter KUBE-FORWARD -m comment --comment "kubernetes forwarding conntrack rule" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
`)
}

func TestNodePortEntry(t *testing.T) {
	const note = `-m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain" `
	for _, c := range []struct {
		name  string
		n     nodeRules
		addrs []netip.Addr
		want  string
	}{
		{"everywhere", nodeRules{family: lab.V4, localhost: true}, nil, note +
			"-m addrtype --dst-type LOCAL -j KUBE-NODEPORTS"},
		{"not on localhost", nodeRules{family: lab.V4}, nil, note +
			"-m addrtype --dst-type LOCAL ! -d 127.0.0.0/8 -j KUBE-NODEPORTS"},
		{"IPv6", nodeRules{family: lab.V6}, nil, note + "-m addrtype --dst-type LOCAL ! -d ::1/128 -j KUBE-NODEPORTS"},
		{"some", nodeRules{family: lab.V4}, []netip.Addr{netip.MustParseAddr("192.168.7.11")}, note +
			"-d 192.168.7.11 -j KUBE-NODEPORTS"},
		{"none", nodeRules{family: lab.V4}, []netip.Addr{}, ""},
	} {
		var got []string
		for _, r := range c.n.nodePortEntry(c.addrs) {
			got = append(got, string(r))
		}
		if text := strings.Join(got, "\n"); text != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, text, c.want)
		}
	}
}

// fragmentText lists the rules of a fragment by table and chain.
func fragmentText(f *xtables.Fragment) string {
	var b strings.Builder
	for i, c := range layout(nil) {
		for _, r := range f.Shared[i] {
			fmt.Fprintf(&b, "%s %s %s\n", c.Table, c.Name, r)
		}
	}
	return b.String() + chainText("nat", f.Chains)
}

func chainText(table string, chains []xtables.Chain) string {
	var b strings.Builder
	for _, ch := range chains {
		for _, r := range ch.Rules {
			fmt.Fprintf(&b, "%s %s %s\n", table, ch.Name, r)
		}
	}
	return b.String()
}

// compare compares rules. The order of chains does not matter; the order of rules in a chain does.
func compare(t *testing.T, got, want string) {
	t.Helper()
	g, w := byChain(got), byChain(want)
	if !slices.Equal(g, w) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(g, "\n"), strings.Join(w, "\n"))
	}
}

func byChain(text string) []string {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
	slices.SortStableFunc(lines, func(a, b string) int { return strings.Compare(chainOf(a), chainOf(b)) })
	return lines
}

// chainOf is the table and chain at the beginning of a line.
func chainOf(line string) string {
	words := strings.SplitN(line, " ", 3)
	return words[0] + " " + words[1]
}
