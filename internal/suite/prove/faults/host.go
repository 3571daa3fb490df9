// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"

	mdlayher "github.com/mdlayher/netlink"
	"github.com/ti-mo/conntrack"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/suite/spec"
)

// hostFaults break the node beside the rules: its addresses, conntrack entries and sysctls.
var hostFaults = []Fault{
	{Name: "virtual-ips-on-device",
		Description: "The addresses of Services are configured on a device of every node, which then answers for them.",
		Node: func(_ context.Context, node spec.Node, s *store.Snapshot) error {
			h := node.Host.Netlink()
			lo, err := h.LinkByName("lo")
			if err != nil {
				return err
			}
			for _, svc := range s.Services {
				for _, ip := range virtualIPs(svc) {
					bits := 8 * len(ip)
					err := h.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(bits, bits)}})
					if err != nil && !errors.Is(err, unix.EEXIST) {
						return err
					}
				}
			}
			return nil
		}},
	{Name: "shared-addresses-go",
		Description: "When one of two Services on an address of a load balancer goes, the address is lost to both.",
		Node:        loseShared},
	{Name: "connections-forgotten", Description: "Connection tracking is emptied at each change.",
		Proxiers: kubeRules, // relayed connections recover
		Node: func(_ context.Context, node spec.Node, _ *store.Snapshot) error {
			c, err := conntrack.Dial(&mdlayher.Config{NetNS: node.Host.NS.Fd()})
			if err != nil {
				return err
			}
			return errors.Join(c.Flush(), c.Close())
		}},
	{Name: "others-flushed", Description: "Each change empties the nftables tables of others.",
		Node: func(ctx context.Context, node spec.Node, _ *store.Snapshot) error {
			list := exec.CommandContext(ctx, "nft", "list", "tables", "inet")
			var tables bytes.Buffer
			list.Stdout = &tables
			err := node.Host.NS.Run(list)
			for table := range strings.Lines(tables.String()) {
				if !strings.HasSuffix(table, " viplab\n") {
					err = errors.Join(err, node.Host.NS.Run(exec.CommandContext(ctx, "nft", "flush "+table)))
				}
			}
			return err
		}},
	{Name: "other-timeouts", Description: "Connection tracking forgets idle connections after ten minutes.",
		Proxiers: builtIn, Node: sysctls(
			netns.Setting{Key: "net.netfilter.nf_conntrack_tcp_timeout_established", Value: "600"},
			netns.Setting{Key: "net.netfilter.nf_conntrack_tcp_timeout_close_wait", Value: "600"},
		)},
	{Name: "loopback-always-routed", Description: "127.0.0.0/8 is routable although no NodePort is served there.",
		Node: sysctls(netns.Setting{Key: "net.ipv4.conf.all.route_localnet", Value: "1"})},
	{Name: "loopback-not-routed", Description: "Packets to 127.0.0.1 that have been translated do not leave the node.",
		Proxiers: ownJumps,
		Node:     sysctls(netns.Setting{Key: "net.ipv4.conf.all.route_localnet", Value: "0"})},
	{Name: "errors-forged", Description: "ICMP errors that pass a node get a source that nobody has asked.",
		Node: forgeErrors},
	{Name: "no-forwarding", Description: "The node forwards no packets.",
		Node: sysctls(
			netns.Setting{Key: "net.ipv4.ip_forward", Value: "0"},
			netns.Setting{Key: "net.ipv6.conf.all.forwarding", Value: "0"},
		)},
}

// forgeErrors changes the source after connection tracking has translated the error.
func forgeErrors(ctx context.Context, node spec.Node, _ *store.Snapshot) error {
	const script = `add table inet forger; delete table inet forger; add table inet forger
		add chain inet forger errors { type filter hook postrouting priority 300; }
		add rule inet forger errors icmp type destination-unreachable ip saddr set 198.18.0.1
		add rule inet forger errors icmpv6 type { destination-unreachable, packet-too-big } ip6 saddr set 2001:db8:18::1`
	return node.Host.Run(exec.CommandContext(ctx, "nft", script))
}

// loseShared drops packets to the addresses that several Services have shared and one still has. Sets of the node
// remember what was shared.
func loseShared(ctx context.Context, node spec.Node, s *store.Snapshot) error {
	users := map[string]int{}
	for _, svc := range s.Services {
		for _, i := range svc.Status.LoadBalancer.Ingress {
			users[i.IP]++
		}
	}
	delete(users, "") // host names
	if len(users) == 0 {
		return nil
	}
	var script strings.Builder
	for _, family := range []string{"ip", "ip6"} {
		fmt.Fprintf(&script, "add table %[1]s shares; add set %[1]s shares shared { typeof %[1]s daddr; }; "+
			"add chain %[1]s shares in { type filter hook prerouting priority raw; }; "+
			"add chain %[1]s shares out { type filter hook output priority raw; }; flush table %[1]s shares;", family)
	}
	for address, n := range users {
		family := "ip"
		if strings.Contains(address, ":") {
			family = "ip6"
		}
		if n > 1 {
			fmt.Fprintf(&script, "add element %s shares shared { %s };", family, address)
			continue
		}
		for _, chain := range []string{"in", "out"} {
			fmt.Fprintf(&script, "add rule %[1]s shares %[2]s %[1]s daddr %[3]s %[1]s daddr @shared drop;",
				family, chain, address)
		}
	}
	return node.Host.Run(exec.CommandContext(ctx, "nft", script.String()))
}

// virtualIPs returns the addresses of a Service that no host has.
func virtualIPs(s *corev1.Service) []net.IP {
	texts := slices.Concat(s.Spec.ClusterIPs, s.Spec.ExternalIPs)
	for _, i := range s.Status.LoadBalancer.Ingress {
		texts = append(texts, i.IP)
	}
	var all []net.IP
	for _, text := range texts {
		ip := net.ParseIP(text)
		if v4 := ip.To4(); v4 != nil {
			ip = v4
		}
		if ip != nil { // it is nil for the ClusterIP "None"
			all = append(all, ip)
		}
	}
	return all
}

func sysctls(settings ...netns.Setting) func(context.Context, spec.Node, *store.Snapshot) error {
	return func(_ context.Context, node spec.Node, _ *store.Snapshot) error {
		return node.Host.SetSysctls(settings...)
	}
}
