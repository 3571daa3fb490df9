// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

func TestSysctls(t *testing.T) {
	t.Parallel()
	everyLab(t, 1, 1, func(t *testing.T, l *Lab) {
		n, p := l.Node("n1"), l.Pod("n1-p1")
		rows := []struct {
			host      *Host
			key, want string
		}{
			{&n.Host, "net.ipv4.ip_forward", "1"},
			{&n.Host, "net.ipv4.conf.all.rp_filter", "0"},
			{&n.Host, "net.ipv4.conf.eth0.rp_filter", "0"},
			{&n.Host, "net.ipv4.conf.lo.rp_filter", "0"},
			{&n.Host, "net.ipv4.conf.eth0.send_redirects", "0"},
			{&n.Host, "net.ipv4.conf.all.route_localnet", "0"},
			{&n.Host, "net.ipv4.icmp_ratemask", "0"},
			{&n.Host, "net.ipv4.tcp_orphan_retries", "1"},
			{&n.Host, "net.netfilter.nf_conntrack_events", "1"},
			{&n.Host, "net.netfilter.nf_conntrack_acct", "1"},
			{&p.Host, "net.ipv4.icmp_ratemask", "0"},
			{&p.Host, "net.ipv4.tcp_orphan_retries", "1"},
			{l.Router(), "net.ipv4.ip_forward", "1"},
			{l.Router(), "net.ipv4.fib_multipath_hash_policy", "1"},
			{l.Client(), "net.ipv4.ip_forward", "0"},
			{l.Client(), "net.ipv4.conf.all.rp_filter", "0"},
		}
		add := func(h *Host, key, want string) {
			rows = append(rows, struct {
				host      *Host
				key, want string
			}{h, key, want})
		}
		if l.Stack() != IPv4 {
			add(&n.Host, "net.ipv6.conf.all.forwarding", "1")
			add(l.Router(), "net.ipv6.fib_multipath_hash_policy", "1")
			add(&n.Host, "net.ipv6.conf.eth0.accept_dad", "0")
			add(&n.Host, "net.ipv6.conf.eth0.accept_ra", "0")
			add(&n.Host, "net.ipv6.icmp.ratemask", "255")
			add(&p.Host, "net.ipv6.icmp.ratemask", "255")
			add(&p.Host, "net.ipv6.conf.eth0.accept_ra", "0")
		}
		if l.Topology().PodNetwork == Bridge {
			add(&n.Host, "net.bridge.bridge-nf-call-iptables", "1")
			add(&n.Host, "net.bridge.bridge-nf-call-ip6tables", "1")
		} else {
			add(&n.Host, "net.ipv4.conf.cali2.proxy_arp", "1")
			add(&n.Host, "net.ipv4.neigh.cali2.proxy_delay", "0")
		}
		for _, row := range rows {
			if got, err := row.host.Sysctl(row.key); got != row.want || err != nil {
				t.Errorf("%s: %s = %s, %v; want %s", row.host.Name(), row.key, got, err, row.want)
			}
		}
		if bridgePossible(t) == nil {
			if got, err := l.Underlay().Sysctl("net.bridge.bridge-nf-call-iptables"); got != "0" || err != nil {
				t.Errorf("underlay: bridge-nf-call-iptables = %s, %v; want 0", got, err)
			}
		}
	})
}

// Settings that the machine's first namespace hands down must not reach the lab. A namespace of the same kind tells
// which differ from what the lab wants, and those are written.
func TestInheritedSettingsAreOverruled(t *testing.T) {
	fresh, err := netns.New("fresh", netns.Setting{Key: "net.ipv4.conf.default.rp_filter", Value: "2"})
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	got, err := newSettings(fresh, Topology{PodNetwork: Routed})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range got.node {
		if s.Key == "net.ipv4.conf.default.rp_filter" && s.Value == "0" {
			return
		}
	}
	t.Errorf("rp_filter is not among the settings that are written: %v", got.node)
}

func TestEveryBridgePortHasHairpinMode(t *testing.T) {
	t.Parallel()
	l := build(t, grid(1, 2))
	addPod(t, l, "n1", "another")
	n := l.Node("n1")
	for _, p := range l.Pods() {
		port, err := n.Netlink().LinkByName(p.port().Name)
		if err != nil {
			t.Fatal(err)
		}
		info, err := netns.List(func() ([]netlink.Protinfo, error) {
			info, err := n.Netlink().LinkGetProtinfo(port)
			return []netlink.Protinfo{info}, err
		})
		if err != nil || !info[0].Hairpin {
			t.Errorf("%s: %+v, %v; want hairpin mode", port.Attrs().Name, info, err)
		}
	}
}

// Every refused datagram is answered, however many come at once: the kernel's limits on ICMP errors are off.
func TestRefusalsAreNotRationed(t *testing.T) {
	t.Parallel()
	topology := grid(1, 1)
	topology.Stack = Dual
	topology.PodNetwork = Routed
	l := build(t, topology)
	for _, to := range []*Host{&l.Node("n1").Host, &l.Pod("n1-p1").Host} {
		from := &l.Node("n1").Host
		if to == from {
			from = l.Client()
		}
		for _, f := range l.Stack().Families() {
			for i := range 300 {
				if err := refused(t, from, to.Addr(f)); err != nil {
					t.Errorf("%s to %s: datagram %d: %v", from.Name(), to.Addr(f), i+1, err)
					break
				}
			}
		}
	}
}

// refused sends a datagram to a port where nobody listens and waits for the refusal.
func refused(t *testing.T, from *Host, to netip.Addr) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := from.Dial(ctx, "udp", netip.AddrPort{}, netip.AddrPortFrom(to, 9))
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write([]byte("hello")); err != nil {
		return err
	}
	deadline, _ := ctx.Deadline()
	if err := c.SetReadDeadline(deadline); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 1))
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil
	}
	return fmt.Errorf("not refused: %w", err)
}

// A host's further addresses are there to be talked to, not from.
func TestSpareAddressesAreNoSources(t *testing.T) {
	t.Parallel()
	topology := grid(2, 0)
	topology.Stack = Dual
	l := build(t, topology)
	for _, from := range []*Host{&l.Node("n1").Host, l.Client()} {
		for _, to := range append(l.Node("n2").Addrs(), l.Router().Addrs()...) {
			if got, want := from.EgressAddr(to), from.Addr(FamilyOf(to)); got != want {
				t.Errorf("%s talks to %s from %s, want %s", from.Name(), to, got, want)
			}
		}
	}
}

func TestLocalAddrs(t *testing.T) {
	t.Parallel()
	everyLab(t, 2, 1, func(t *testing.T, l *Lab) {
		n := l.Node("n1")
		got, err := n.LocalAddrs()
		if err != nil {
			t.Fatal(err)
		}
		want := map[netip.Addr]bool{}
		kind, _ := l.Overlay()
		for _, a := range n.Addrs() {
			want[a] = true
		}
		for _, f := range l.Stack().Families() {
			if l.Topology().PodNetwork == Bridge {
				want[podAddr(f, 1, gatewayPod)] = true
			}
			if kind != Direct {
				want[podAddr(f, 1, tunnelPod)] = true
			}
		}
		for _, a := range got {
			if !want[a] {
				t.Errorf("unexpected %s", a)
			}
			delete(want, a)
		}
		for a := range want {
			t.Errorf("missing %s", a)
		}
	})
}
