// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/labtest"
	"github.com/viplab/viplab/lab/match"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/traffic"
)

// asPlugin makes this test binary be the plugin.
const asPlugin = "CNI_TEST_AS_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) != "" {
		main()
		return
	}
	labtest.Main(m)
}

// The ports of servers in pods.
var (
	tcp = traffic.Port{Proto: "tcp", Number: 80}
	udp = traffic.Port{Proto: "udp", Number: 53}
)

// pod is a pod that the plugin connects.
type pod struct {
	name  string
	node  *lab.Node
	ns    *netns.NS
	addrs []netip.Addr
}

// newPod does what a container runtime does: it makes a network namespace with loopback, and calls the plugin.
func newPod(t *testing.T, node *lab.Node, name string, addrs ...string) *pod {
	t.Helper()
	labtest.Require(t)
	ns, err := netns.New(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	lo, err := ns.Netlink().LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Netlink().LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	p := &pod{name: name, node: node, ns: ns}
	for _, a := range addrs {
		p.addrs = append(p.addrs, netip.MustParseAddr(a))
	}
	result := p.call(t, "ADD")
	var got struct {
		IPs []struct{ Address netip.Prefix }
	}
	if err := json.Unmarshal(result, &got); err != nil || len(got.IPs) != len(addrs) {
		t.Fatalf("the plugin printed %s (%v), want %d addresses", result, err, len(addrs))
	}
	server, err := traffic.Serve(ns, name, p.addrs, tcp, udp)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return p
}

// call calls the plugin in the network namespace of the node.
func (p *pod) call(t *testing.T, command string) []byte {
	t.Helper()
	var prefixes []netip.Prefix
	for _, a := range p.addrs {
		prefixes = append(prefixes, netip.PrefixFrom(a, a.BitLen()))
	}
	config, err := json.Marshal(map[string]any{
		"cniVersion": "1.0.0", "name": "lab", "type": "cni", "runtimeConfig": map[string]any{"ips": prefixes},
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), asPlugin+"=1", "CNI_COMMAND="+command, "CNI_CONTAINERID="+p.name, "CNI_IFNAME=eth0",
		fmt.Sprintf("CNI_NETNS=/proc/%d/fd/%d", os.Getpid(), p.ns.Fd()), "CNI_PATH=/")
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(config), &stdout, &stderr
	if err := p.node.Run(cmd); err != nil {
		t.Fatalf("%s of %s: %v\n%s%s", command, p.name, err, &stdout, &stderr)
	}
	return stdout.Bytes()
}

// build makes a lab of two nodes. The second has a pod of viplab's own, which the plugin's pods talk to.
func build(t *testing.T) (l *lab.Lab, other *pod) {
	t.Helper()
	labtest.Require(t)
	l, err := lab.Build(t.Context(), lab.Topology{
		Stack:      lab.Dual,
		PodNetwork: lab.Routed,
		Nodes:      []lab.NodeSpec{{Name: "n1"}, {Name: "n2", Pods: []lab.PodSpec{{Name: "other"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	o := l.Pod("other")
	server, err := traffic.Serve(o.NS, "other", o.Addrs(), tcp, udp)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return l, &pod{name: "other", ns: o.NS, addrs: o.Addrs()}
}

// probe is a request to an address of a pod. Fences are addresses that answer echoes: they prove silence at once.
func probe(from *netns.NS, to netip.Addr, port traffic.Port, fences ...netip.Addr) traffic.Probe {
	return traffic.Probe{From: from, To: netip.AddrPortFrom(to, port.Number), Proto: port.Proto, Fences: fences}
}

// Pods reach one another on their node and across nodes, without address translation.
func TestPodsReachOneAnother(t *testing.T) {
	l, other := build(t)
	a := newPod(t, l.Node("n1"), "a", "10.244.1.10", "fd00:10:244:1::10")
	b := newPod(t, l.Node("n1"), "b", "10.244.1.11", "fd00:10:244:1::11")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, pair := range [][2]*pod{{a, b}, {b, a}, {a, other}, {other, a}, {a, a}} {
		from, to := pair[0], pair[1]
		for k, addr := range to.addrs {
			for _, port := range []traffic.Port{tcp, udp} {
				t.Run(fmt.Sprintf("%s to %s:%s", from.name, addr, port), func(t *testing.T) {
					gomega.NewWithT(t).Expect(probe(from.ns, addr, port).Do(ctx)).
						To(gomega.And(match.ReplyFrom(to.name), match.SeenAs(from.addrs[k])))
				})
			}
		}
	}
	t.Run("the node to its pod", func(t *testing.T) {
		gomega.NewWithT(t).Expect(probe(l.Node("n1").NS, a.addrs[0], tcp).Do(ctx)).To(match.ReplyFrom("a"))
	})
}

// After DEL nothing of a pod is left on the node, and DEL again is no error.
func TestDel(t *testing.T) {
	l, other := build(t)
	before, err := l.Node("n1").Netlink().LinkList()
	if err != nil {
		t.Fatal(err)
	}
	a := newPod(t, l.Node("n1"), "a", "10.244.1.10", "fd00:10:244:1::10")
	a.call(t, "DEL")
	a.call(t, "DEL")
	after, err := l.Node("n1").Netlink().LinkList()
	if err != nil {
		t.Fatal(err)
	}
	if len(after) != len(before) {
		t.Errorf("n1 has %d devices, had %d", len(after), len(before))
	}
	gone := probe(other.ns, a.addrs[0], tcp, l.Node("n1").Addr(lab.V4)).Do(t.Context())
	gomega.NewWithT(t).Expect(gone).To(gomega.Or(match.Silent(), match.Unreachable()))
}
