// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/proxiers/model"
)

var renderCases = []struct {
	name    string
	change  func(*model.Port)
	servers []string
	bound   []string
	sets    []string
}{
	{
		"ClusterIP", nil,
		[]string{"TCP 10.96.0.10:80 -> 10.244.1.5:8080 10.244.2.7:8080"},
		[]string{"10.96.0.10"},
		[]string{"KUBE-CLUSTER-IP 10.96.0.10,tcp:80", "KUBE-LOOP-BACK 10.244.1.5,tcp:8080,10.244.1.5"},
	},
	{
		"an endpoint of an unknown node", func(p *model.Port) {
			p.Cluster, p.Local = []model.Endpoint{{Addr: far.Addr, NodeUnknown: true}}, nil
		},
		[]string{"TCP 10.96.0.10:80 -> 10.244.2.7:8080"},
		[]string{"10.96.0.10"},
		[]string{"KUBE-CLUSTER-IP 10.96.0.10,tcp:80", "KUBE-LOOP-BACK 10.244.2.7,tcp:8080,10.244.2.7"},
	},
	{
		"affinity", func(p *model.Port) { p.Affinity = affinity },
		[]string{"TCP 10.96.0.10:80 ->"},
		[]string{"10.96.0.10"},
		[]string{"KUBE-CLUSTER-IP 10.96.0.10,tcp:80", "KUBE-LOOP-BACK 10.244.1.5,tcp:8080,10.244.1.5"},
	},
	{
		"no endpoints", func(p *model.Port) { p.Cluster, p.Local, p.Anywhere = nil, nil, false },
		[]string{"TCP 10.96.0.10:80 ->"}, // which the kernel refuses connections to
		[]string{"10.96.0.10"},
		[]string{"KUBE-CLUSTER-IP 10.96.0.10,tcp:80"},
	},
	{
		"no endpoints, external addresses", func(p *model.Port) {
			p.Cluster, p.Local, p.Anywhere = nil, nil, false
			p.ExternalIPs, p.LoadBalancerIPs = addrs("198.51.100.1", "192.168.7.111"), addrs("203.0.113.1")
		},
		[]string{
			"TCP 10.96.0.10:80 ->", "TCP 198.51.100.1:80 ->", "TCP 192.168.7.111:80 ->", "TCP 203.0.113.1:80 ->",
		},
		[]string{"10.96.0.10"},
		[]string{
			"KUBE-CLUSTER-IP 10.96.0.10,tcp:80", "KUBE-EXTERNAL-IP 198.51.100.1,tcp:80",
			"KUBE-EXTERNAL-IP 192.168.7.111,tcp:80", "KUBE-LOAD-BALANCER 203.0.113.1,tcp:80",
			"KUBE-EXTERNAL-REFUSED 198.51.100.1,tcp:80", "KUBE-EXTERNAL-REFUSED 203.0.113.1,tcp:80", // the other is the node's
		},
	},
	{
		"internal policy Local", func(p *model.Port) { p.InternalLocal = true },
		[]string{"TCP 10.96.0.10:80 -> 10.244.1.5:8080"},
		[]string{"10.96.0.10"},
		[]string{"KUBE-CLUSTER-IP 10.96.0.10,tcp:80", "KUBE-LOOP-BACK 10.244.1.5,tcp:8080,10.244.1.5"},
	},
	{
		"internal policy Local without local endpoint", func(p *model.Port) { withoutLocal(p); p.InternalLocal = true },
		[]string{"TCP 10.96.0.10:80 ->"},
		[]string{"10.96.0.10"},
		[]string{"KUBE-CLUSTER-IP 10.96.0.10,tcp:80", "KUBE-INTERNAL-NO-LOCAL 10.96.0.10,tcp:80"},
	},
	{
		"NodePort of UDP", func(p *model.Port) { withoutLocal(p); p.ID.Protocol, p.NodePort = corev1.ProtocolUDP, 30080 },
		[]string{
			"UDP 10.96.0.10:80 ->",
			"UDP 192.168.7.11:30080 ->", "UDP 192.168.7.111:30080 ->", "UDP 10.244.1.1:30080 ->",
		},
		[]string{"10.96.0.10"},
		[]string{"KUBE-CLUSTER-IP 10.96.0.10,udp:80", "KUBE-NODE-PORT-UDP 30080"},
	},
	{
		"NodePort of SCTP under policy Local", func(p *model.Port) {
			withoutLocal(p)
			p.ID.Protocol, p.NodePort, p.ExternalLocal, p.Anywhere = corev1.ProtocolSCTP, 30080, true, false
			p.Cluster = nil
		},
		[]string{
			"SCTP 10.96.0.10:80 ->", "SCTP 192.168.7.11:30080 ->", "SCTP 192.168.7.111:30080 ->", "SCTP 10.244.1.1:30080 ->",
		},
		[]string{"10.96.0.10"},
		[]string{
			"KUBE-CLUSTER-IP 10.96.0.10,sctp:80",
			"KUBE-NODE-PORT-SCTP-HASH 192.168.7.11,sctp:30080",
			"KUBE-NODE-PORT-SCTP-HASH 192.168.7.111,sctp:30080",
			"KUBE-NODE-PORT-SCTP-HASH 10.244.1.1,sctp:30080",
		},
	},
	{
		"external policy Local", func(p *model.Port) {
			p.ExternalLocal, p.NodePort, p.HealthCheckPort = true, 30080, 30099
			p.ExternalIPs, p.LoadBalancerIPs = addrs("198.51.100.1", "192.168.7.111"), addrs("203.0.113.1")
		},
		[]string{
			"TCP 10.96.0.10:80 -> 10.244.1.5:8080 10.244.2.7:8080", "TCP 198.51.100.1:80 ->",
			"TCP 192.168.7.111:80 ->", "TCP 203.0.113.1:80 ->",
			"TCP 192.168.7.11:30080 ->", "TCP 192.168.7.111:30080 ->", "TCP 10.244.1.1:30080 ->",
		},
		[]string{"10.96.0.10"},
		[]string{
			"KUBE-CLUSTER-IP 10.96.0.10,tcp:80", "KUBE-LOOP-BACK 10.244.1.5,tcp:8080,10.244.1.5",
			"KUBE-EXTERNAL-IP 198.51.100.1,tcp:80", "KUBE-EXTERNAL-IP 192.168.7.111,tcp:80",
			"KUBE-LOAD-BALANCER 203.0.113.1,tcp:80",
			"KUBE-NODE-PORT-TCP 30080", "KUBE-HEALTH-CHECK-NODE-PORT 30099",
		},
	},
	{
		"external policy Local without local endpoint", func(p *model.Port) {
			withoutLocal(p)
			p.ExternalLocal, p.ExternalIPs = true, addrs("198.51.100.1")
		},
		[]string{"TCP 10.96.0.10:80 -> 10.244.2.7:8080", "TCP 198.51.100.1:80 ->"},
		[]string{"10.96.0.10"},
		[]string{
			"KUBE-CLUSTER-IP 10.96.0.10,tcp:80", "KUBE-EXTERNAL-IP 198.51.100.1,tcp:80",
			"KUBE-EXTERNAL-NO-LOCAL 198.51.100.1,tcp:80",
		},
	},
	{
		"source ranges that admit the node", func(p *model.Port) {
			withoutLocal(p)
			p.LoadBalancerIPs = addrs("203.0.113.1")
			p.SourceRanges = []netip.Prefix{netip.MustParsePrefix("192.168.7.0/24"), netip.MustParsePrefix("192.0.2.7/32")}
		},
		[]string{"TCP 10.96.0.10:80 -> 10.244.2.7:8080", "TCP 203.0.113.1:80 -> 10.244.2.7:8080"},
		[]string{"10.96.0.10"},
		[]string{
			"KUBE-CLUSTER-IP 10.96.0.10,tcp:80", "KUBE-LOAD-BALANCER 203.0.113.1,tcp:80",
			"KUBE-LOAD-BALANCER-FW 203.0.113.1,tcp:80",
			"KUBE-LOAD-BALANCER-SOURCE-CIDR 203.0.113.1,tcp:80,192.168.7.0/24",
			"KUBE-LOAD-BALANCER-SOURCE-CIDR 203.0.113.1,tcp:80,192.0.2.7",
			"KUBE-LOAD-BALANCER-SOURCE-IP 203.0.113.1,tcp:80,203.0.113.1",
		},
	},
	{
		"source ranges that do not", func(p *model.Port) {
			withoutLocal(p)
			p.LoadBalancerIPs, p.SourceRanges = addrs("203.0.113.1"), []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
		},
		[]string{"TCP 10.96.0.10:80 -> 10.244.2.7:8080", "TCP 203.0.113.1:80 -> 10.244.2.7:8080"},
		[]string{"10.96.0.10"},
		[]string{
			"KUBE-CLUSTER-IP 10.96.0.10,tcp:80", "KUBE-LOAD-BALANCER 203.0.113.1,tcp:80",
			"KUBE-LOAD-BALANCER-FW 203.0.113.1,tcp:80",
			"KUBE-LOAD-BALANCER-SOURCE-CIDR 203.0.113.1,tcp:80,192.0.2.0/24",
		},
	},
}

// TestRender: the virtual servers, addresses and entries of sets that a Service makes. What is expected follows
// kube-proxy's documentation of its ipvs mode (pkg/proxy/ipvs/README.md), but for the sets NO-LOCAL and REFUSED, which are
// ours, for its sets ...-LOCAL, whose frontends rules serve here, and for the device, which has ClusterIPs alone.
func TestRender(t *testing.T) {
	for _, c := range renderCases {
		t.Run(c.name, func(t *testing.T) {
			d := newDesired(testTranslator)
			d.advance(&model.State{Services: []*model.Service{web(c.change)}}, testPlace)
			var servers, bound, sets []string
			for fr := range d.servers.Ledger {
				servers = append(servers, describe(d, fr))
			}
			for a := range d.bound.Ledger {
				bound = append(bound, a.String())
			}
			for m := range d.members.Ledger {
				if m.set != ipvsIPs {
					sets = append(sets, m.set.nameIn(lab.V4)+" "+m.entry.String())
				} else if len(d.bound.Ledger[m.entry.Addr]) == 0 {
					t.Errorf("%s lists %s, which is not to be on the device", m.set.nameIn(lab.V4), m.entry)
				}
			}
			expectLines(t, "virtual servers", servers, c.servers)
			expectLines(t, "addresses", bound, c.bound)
			expectLines(t, "sets", sets, c.sets)
		})
	}
}

// describe is a virtual server in a line.
func describe(d *desired, fr frontend) string {
	c, _ := d.servers.Get(fr)
	text := fr.String() + " ->"
	for _, b := range c.backends {
		text += " " + b.String()
	}
	return text
}

// TestNames: the kernel takes 31 bytes, and names of the two families differ.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for id := range setCount {
		for _, f := range []lab.Family{lab.V4, lab.V6} {
			name := id.nameIn(f)
			if len(name) > 31 || seen[name] || !strings.HasPrefix(name, "KUBE-") {
				t.Errorf("%q: too long, or there twice, or not of ours", name)
			}
			seen[name] = true
		}
	}
}
