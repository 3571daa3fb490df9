// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"net/netip"
	"testing"

	"github.com/viplab/viplab/internal/lab/ruleset"
	"github.com/viplab/viplab/lab/cluster/manifest"
	"github.com/viplab/viplab/lab/cluster/store"
)

const objects = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  clusterIP: 10.96.0.77
  ports: [{name: http, port: 80, targetPort: 8080, nodePort: 30077}, {name: dns, port: 53, protocol: UDP}]
---
apiVersion: v1
kind: Service
metadata: {name: other}
spec: {clusterIP: 10.96.0.78, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.244.2.3]}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: other-1, labels: {kubernetes.io/service-name: other}}
addressType: IPv4
ports: [{port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.244.2.3]}]
`

func open(t *testing.T) *Book {
	t.Helper()
	decoded, err := manifest.Decode("objects", []byte(objects))
	if err != nil {
		t.Fatal(err)
	}
	s := store.New(store.Config{ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}})
	if err := s.Apply(decoded...); err != nil {
		t.Fatal(err)
	}
	names := map[netip.Addr]string{netip.MustParseAddr("10.244.2.3"): "default/a1"}
	return New(s.Snapshot(), names, map[string]string{"cali:x": "policy p allows it", "KUBE-SERVICES": "look-up"})
}

func TestRulesAreExplained(t *testing.T) {
	b := open(t)
	for text, want := range map[string]string{
		`-A S -d 10.96.0.77/32 -p tcp -m tcp --dport 80 -j X`:                    "default/web http 80/TCP: ClusterIP",
		`-A S -d 10.96.0.77/32 -p tcp -m tcp --dport 81 -j X`:                    "",
		`-A S -d 10.96.0.77/32 -p udp -m comment --comment "by tcp" -j X`:        "default/web dns 53/UDP: ClusterIP",
		`-A S -d 10.96.0.77/32 -j DROP`:                                          "default/web http 80/TCP: ClusterIP; default/web dns 53/UDP: ClusterIP; drops",
		`-A N -p tcp --dport 30077 -j X`:                                         "default/web http 80/TCP: NodePort",
		`-A E -m comment --comment "default/web:http" -j X`:                      "default/web",
		`-A E -p tcp -j DNAT --to-destination 10.244.2.3:8080`:                   "default/other: endpoint default/a1; default/web: endpoint default/a1; changes the destination",
		`-A E -s 10.244.2.3/32 -m comment --comment "default/web"`:               "default/web: endpoint default/a1",
		`-A E -s 10.244.2.3/32 --dport 9 -j X`:                                   "default/a1",
		`-A F -m comment --comment "cali:x" -j MARK --set-xmark 0x10000/0x10000`: "policy p allows it; marks the packet",
		`-A P -j KUBE-SERVICES`:                                                  "",
		`10.96.0.77 . tcp . 80 : 10.244.2.3 . 8080`:                              "default/web http 80/TCP: ClusterIP; default/web: endpoint default/a1",
		`10.96.0.78,tcp:80`:                                                      "default/other 80/TCP: ClusterIP",
		`goto service-ULMVA6X2-default/web/tcp/http`:                             "default/web",
		`ct status dnat jump masquerading`:                                       "",
		`meta l4proto tcp dnat ip to 10.244.2.3:8080`:                            "default/other: endpoint default/a1; default/web: endpoint default/a1; changes the destination",
		`ip daddr 10.0.0.0/8 drop`:                                               "drops",
		`ip daddr 10.96.0.78 tcp dport { 79, 80 } reject with tcp reset`:         "default/other 80/TCP: ClusterIP; refuses",
		`-A X -m comment --comment "nobody/web"`:                                 "",
	} {
		if got := b.rule(text, ""); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestAChainOfKubeProxyNamesItsService(t *testing.T) {
	b := open(t)
	got := b.rule("meta l4proto tcp dnat to 10.244.2.3:8080", "endpoint-ULMVA6X2-default/web/tcp/http__10.244.2.3/8080")
	if want := "default/web: endpoint default/a1; changes the destination"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestNarrowFollowsJumps(t *testing.T) {
	b := open(t)
	rule := func(text string, jumps ...string) *ruleset.Rule { return &ruleset.Rule{Text: text, Jumps: jumps} }
	whole := &ruleset.Ruleset{Tables: []*ruleset.Table{{
		Backend: ruleset.IptablesNFT, Family: ruleset.IP, Name: "nat",
		Chains: []*ruleset.Chain{
			{Name: "PREROUTING", Hook: "prerouting", Rules: []*ruleset.Rule{rule("-j SERVICES", "SERVICES"), rule("-j UNUSED", "UNUSED")}},
			{Name: "SERVICES", Rules: []*ruleset.Rule{
				rule("-d 10.96.0.77 --dport 80 -j WEB", "WEB"), rule("-d 10.96.0.78 --dport 80 -j OTHER", "OTHER"), rule("-j LATER", "LATER"),
			}},
			{Name: "WEB", Rules: []*ruleset.Rule{rule("-j MARK-MASQ", "MARK-MASQ"), rule("-j DNAT --to-destination 10.244.2.3:8080")}},
			{Name: "OTHER", Rules: []*ruleset.Rule{rule("-j DNAT --to-destination 10.244.2.3:8080")}},
			{Name: "LATER", Rules: []*ruleset.Rule{rule("-d 10.96.0.78 -j OTHER", "OTHER")}},
			{Name: "MARK-MASQ", Rules: []*ruleset.Rule{rule("-j MARK --set-xmark 0x4000/0x4000")}},
			{Name: "UNUSED"},
		},
		Sets: []*ruleset.Set{{Name: "s", Elements: []ruleset.Element{{Text: "10.96.0.77"}, {Text: "10.96.0.78"}, {Text: "10.0.0.0/8"}}}},
	}}}
	narrow := b.Narrow(whole, store.Key{Namespace: "default", Name: "web"}).Tables[0]
	got := map[string]int{}
	for _, c := range narrow.Chains {
		got[c.Name] = len(c.Rules)
	}
	want := map[string]int{"PREROUTING": 1, "SERVICES": 1, "WEB": 2, "MARK-MASQ": 1}
	if len(got) != len(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for name, n := range want {
		if got[name] != n {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	if n := len(narrow.Sets[0].Elements); n != 2 {
		t.Errorf("%d elements, want 2", n)
	}
	servers := &ruleset.Ruleset{Servers: []*ruleset.Server{
		{Proto: "tcp", At: netip.MustParseAddrPort("10.96.0.77:80"), Scheduler: "rr"},
		{Proto: "tcp", At: netip.MustParseAddrPort("192.168.7.11:30077"), Scheduler: "rr"},
		{Proto: "tcp", At: netip.MustParseAddrPort("10.96.0.78:80"), Scheduler: "rr"},
	}}
	if got := b.Narrow(servers, store.Key{Namespace: "default", Name: "web"}).Servers; len(got) != 2 {
		t.Errorf("%d virtual servers, want 2", len(got))
	}
	servers.Servers[0].Real = []ruleset.RealServer{{At: netip.MustParseAddrPort("10.244.2.3:8080")}}
	b.All(servers)
	if got := servers.Servers[0].Real[0].About; got != "default/web: endpoint default/a1" {
		t.Errorf("the real server is %q", got)
	}
	if len(whole.Tables[0].Chains) != 7 || len(whole.Tables[0].Chains[1].Rules) != 3 {
		t.Error("Narrow changes the rules that it is given")
	}
}
