// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/viplab/viplab/internal/cmd/bench"
	"github.com/viplab/viplab/internal/lab/link"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
)

func measurePieces(ctx context.Context) ([]pieceRow, error) {
	m := &pieces{times: map[string][]time.Duration{}}
	const repeats = 60
	for range repeats {
		if err := m.round(); err != nil {
			return nil, err
		}
	}
	if err := m.changes(ctx); err != nil {
		return nil, err
	}
	var rows []pieceRow
	for _, name := range m.names {
		rows = append(rows, pieceRow{name, bench.Microseconds(bench.Median(m.times[name]))})
	}
	return rows, nil
}

// pieces collects times by name, in the order of their first appearance.
type pieces struct {
	names []string
	times map[string][]time.Duration
}

func (m *pieces) time(name string, f func() error) error {
	start := time.Now()
	err := f()
	if m.times[name] == nil {
		m.names = append(m.names, name)
	}
	m.times[name] = append(m.times[name], time.Since(start))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// round makes two namespaces, a node and a pod, and takes them away.
func (m *pieces) round() error {
	var node *netns.NS
	err := m.time("namespace, with its sockets", func() (err error) { node, err = netns.New("node"); return err })
	if err != nil {
		return err
	}
	pod, err := netns.New("pod")
	if err != nil {
		return errors.Join(err, node.Close())
	}
	return errors.Join(m.wire(node, pod), node.Close(), m.time("let go of a namespace", pod.Close))
}

// wire connects the pod to the node, step by step.
func (m *pieces) wire(node, pod *netns.NS) error {
	bridge, port := link.Dev{Name: "cni0", Index: 101}, link.Dev{Name: "veth2", Index: 1002}
	nic, mac := link.Dev{Name: "eth0", Index: 100}, link.MAC{2, 0, 0, 0, 0, 1}
	prefix, gateway := netip.MustParsePrefix, netip.MustParseAddr("10.0.0.1")
	var routes, neighbours []link.Op
	for i := range 100 {
		to, near := prefix(fmt.Sprintf("10.1.%d.0/24", i)), netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
		routes = append(routes, link.Route{To: to, Via: gateway, Dev: nic})
		neighbours = append(neighbours, link.Neighbour{Addr: near, MAC: mac, Dev: nic})
	}
	for _, step := range []struct {
		name string
		ns   *netns.NS
		ops  []link.Op
	}{
		{"loopback up", pod, []link.Op{link.Up{Dev: link.Loopback}}},
		{"bridge, up", node, []link.Op{link.Bridge{Dev: bridge, MAC: mac, MTU: 1500}}},
		{"veth pair across two namespaces", pod, []link.Op{link.Veth{Dev: nic, MAC: mac, MTU: 1500,
			Peer: link.Peer{Dev: port, MAC: mac, NS: node}}}},
		{"veth end up", pod, []link.Op{link.Up{Dev: nic}}},
		{"other end up, port of the bridge", node, []link.Op{link.Port{Dev: port, Bridge: bridge}}},
		{"hairpin", node, []link.Op{link.Hairpin{Dev: port}}},
		{"IPv4 address", pod, []link.Op{link.Addr{Dev: nic, Prefix: prefix("10.0.0.2/24")}}},
		{"IPv6 address", pod, []link.Op{link.Addr{Dev: nic, Prefix: prefix("fd00::2/64")}}},
		{"route", pod, []link.Op{link.Route{To: prefix("0.0.0.0/0"), Via: gateway, Dev: nic}}},
		{"100 routes", pod, routes},
		{"100 neighbours", pod, neighbours},
	} {
		if err := m.time(step.name, func() error { return link.Apply(step.ns, step.ops...) }); err != nil {
			return err
		}
	}
	return errors.Join(
		m.time("sysctl", func() error {
			return pod.SetSysctls(netns.Setting{Key: "net.ipv4.tcp_orphan_retries", Value: "1"})
		}),
		m.time("20 sysctls", func() error {
			one := netns.Setting{Key: "net.ipv4.conf.all.rp_filter", Value: "0"}
			return pod.SetSysctls(slices.Repeat([]netns.Setting{one}, 20)...)
		}),
		m.time("is a device ready", func() error {
			return link.Ready(context.Background(), pod, link.Carries{Dev: nic})
		}),
		m.time("masquerade rules", func() error {
			rule := link.Masquerade{Pods: []netip.Prefix{prefix("10.0.0.0/24")},
				Cluster: []netip.Prefix{prefix("10.0.0.0/16")}, Nodes: []netip.Addr{netip.MustParseAddr("192.168.7.11")}}
			return rule.Install(node)
		}),
	)
}

// changes times what happens to a lab that runs.
func (m *pieces) changes(ctx context.Context) error {
	l, err := lab.Build(ctx, topology(lab.Topology{}, size{3, 3}))
	if err != nil {
		return err
	}
	for range 20 {
		err = errors.Join(err,
			m.time("AddPod", func() error { _, err := l.AddPod(ctx, "n1", lab.PodSpec{Name: "more"}); return err }),
			m.time("RemovePod", func() error { return l.RemovePod("more") }),
			m.time("AddNode with 3 pods", func() error {
				pods := []lab.PodSpec{{Name: "a"}, {Name: "b"}, {Name: "c"}}
				_, err := l.AddNode(ctx, lab.NodeSpec{Name: "n4", Pods: pods})
				return err
			}),
			m.time("RemoveNode", func() error { return l.RemoveNode("n4") }))
	}
	return errors.Join(err, l.Close())
}
