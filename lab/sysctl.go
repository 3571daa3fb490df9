// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"slices"

	"github.com/viplab/viplab/lab/netns"
)

// A new namespace copies some IPv4 settings from the machine's first namespace (rp_filter, forwarding, arp_*...), where
// an administrator may have changed them. So the lab sets everything that a packet can notice.

// interfaceSettings are those of IPv4 devices: "all", later ones and the loopback. The kernel combines some with "all".
var interfaceSettings = perInterface(
	"rp_filter", "0", // asymmetric paths are ordinary in a cluster
	"send_redirects", "0", // forwarding a packet out of the device it came by is intended here
	"accept_redirects", "0",
	"route_localnet", "0", // proxiers that need it set it, and a scenario must see that
	"arp_ignore", "0",
	"arp_announce", "0",
	"arp_filter", "0",
	"proxy_arp", "0",
	"accept_local", "0",
	"src_valid_mark", "0",
	"log_martians", "0",
)

func perInterface(pairs ...string) []netns.Setting {
	var out []netns.Setting
	for i := 0; i < len(pairs); i += 2 {
		for _, device := range []string{"all", "default", "lo"} {
			out = append(out, netns.Setting{Key: "net.ipv4.conf." + device + "." + pairs[i], Value: pairs[i+1]})
		}
	}
	return out
}

// promptSettings keep a host from delaying or suppressing ICMP errors. An empty mask exempts all types from both
// limits; 255 is no ICMPv6 type. They also keep a dead server's connections from holding its namespace for minutes.
func promptSettings(s Stack) []netns.Setting {
	out := []netns.Setting{
		{Key: "net.ipv4.icmp_ratemask", Value: "0"},
		{Key: "net.ipv4.tcp_orphan_retries", Value: "1"},
	}
	if s != IPv4 {
		out = append(out, netns.Setting{Key: "net.ipv6.icmp.ratemask", Value: "255"})
	}
	return out
}

// groupSettings keep a device from reporting its multicast groups again (MLDv2, RFC 3810 9.11): no router of a lab asks
// for them, and each report passes every port of a bridge.
func groupSettings(s Stack) []netns.Setting {
	if s == IPv4 {
		return nil
	}
	const hour = "3600000" // ms
	return []netns.Setting{{Key: "net.ipv6.conf.default.mldv2_unsolicited_report_interval", Value: hour}}
}

// addressSettings leave IPv6 addresses to the lab: the kernel derives none and sends no solicitations. (addr_gen_mode
// is for nodes and hosts. The one device of a pod gets link.Quiet, which is cheaper.)
func addressSettings(s Stack) []netns.Setting {
	out := []netns.Setting{{Key: "net.ipv6.conf.default.addr_gen_mode", Value: "1", Optional: true}}
	if s != IPv4 {
		out = append(out,
			netns.Setting{Key: "net.ipv6.conf.all.disable_ipv6", Value: "0"},
			netns.Setting{Key: "net.ipv6.conf.default.accept_dad", Value: "0"},
			netns.Setting{Key: "net.ipv6.conf.default.accept_redirects", Value: "0"},
			noRouterSolicitation)
	}
	return out
}

// noRouterSolicitation stops a device from soliciting routers once it has a link-local address.
var noRouterSolicitation = netns.Setting{Key: "net.ipv6.conf.default.accept_ra", Value: "0"}

// forwardSettings make a router. They come first, because forwarding resets some others. Paths are chosen by port, not
// by addresses alone or the IPv6 flow label, which Linux changes at a retransmission (sk_rethink_txhash).
func forwardSettings(s Stack) []netns.Setting {
	out := []netns.Setting{
		{Key: "net.ipv4.ip_forward", Value: "1"},
		{Key: "net.ipv4.fib_multipath_hash_policy", Value: "1", Optional: true},
	}
	if s != IPv4 {
		out = append(out,
			netns.Setting{Key: "net.ipv6.conf.all.forwarding", Value: "1"},
			netns.Setting{Key: "net.ipv6.fib_multipath_hash_policy", Value: "1"})
	}
	return out
}

// bridgeSettings set whether bridged packets pass the IP rules (bridge-nf-call-iptables).
func bridgeSettings(value string, optional bool) []netns.Setting {
	return []netns.Setting{
		{Key: "net.bridge.bridge-nf-call-iptables", Value: value, Optional: optional},
		{Key: "net.bridge.bridge-nf-call-ip6tables", Value: value, Optional: optional},
		{Key: "net.bridge.bridge-nf-call-arptables", Value: "0", Optional: true},
	}
}

// trackingSettings configure connection tracking. They exist once the first rule has made the kernel load it.
var trackingSettings = []netns.Setting{
	{Key: "net.netfilter.nf_conntrack_acct", Value: "1", Optional: true},
	// 2, the default, misses flows older than the listener
	{Key: "net.netfilter.nf_conntrack_events", Value: "1", Optional: true},
	{Key: "net.netfilter.nf_conntrack_tcp_be_liberal", Value: "0", Optional: true},
	{Key: "net.netfilter.nf_conntrack_tcp_loose", Value: "1", Optional: true},
	{Key: "net.netfilter.nf_conntrack_checksum", Value: "1", Optional: true},
	{Key: "net.netfilter.nf_conntrack_log_invalid", Value: "0", Optional: true},
}

// settings are the sysctls that each kind of machine needs, beyond the defaults of a new namespace.
type settings struct{ node, tracking, router, client, pod []netns.Setting }

// newSettings determines the settings in a fresh namespace, which has the same defaults.
func newSettings(fresh *netns.NS, t Topology) (settings, error) {
	host := slices.Concat(interfaceSettings, promptSettings(t.Stack), addressSettings(t.Stack), groupSettings(t.Stack))
	s := settings{
		client:   host,
		router:   slices.Concat(forwardSettings(t.Stack), host),
		pod:      slices.Concat(promptSettings(t.Stack), groupSettings(t.Stack)),
		tracking: trackingSettings,
	}
	s.node = s.router
	if t.PodNetwork == Bridge {
		if err := bridgeFilter(fresh); err != nil {
			return settings{}, err
		}
		s.node = slices.Concat(s.node, bridgeSettings("1", false))
	}
	if t.Stack != IPv4 {
		s.pod = append(s.pod, noRouterSolicitation)
	}
	lacking, err := fresh.DifferingSettings(s.node) // the node's settings include all others
	if err != nil {
		return settings{}, fmt.Errorf("read the settings of a new namespace: %w", err)
	}
	given := func(s netns.Setting) bool { return !slices.Contains(lacking, s) }
	for _, group := range []*[]netns.Setting{&s.client, &s.router, &s.node, &s.pod} {
		*group = slices.DeleteFunc(slices.Clone(*group), given)
	}
	return s, nil
}

// bridgeFilter returns an error if the kernel cannot show bridged packets to the IP rules.
func bridgeFilter(ns *netns.NS) error {
	if _, err := ns.Sysctl("net.bridge.bridge-nf-call-iptables"); err != nil {
		return fmt.Errorf("pods on a bridge: the kernel's br_netfilter is not loaded "+
			"(modprobe br_netfilter; routed pods do without): %w", err)
	}
	return nil
}
