// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"slices"

	"github.com/viplab/viplab/lab/netns"
)

// A new namespace takes part of its IPv4 settings from the machine's first namespace (rp_filter, forwarding, arp_*...),
// whatever an administrator made of them. So everything that a packet can notice is laid down here, not assumed.

// interfaceSettings are those that IPv4 has per device: "all", the devices to come, and the loopback that is there.
// Where the kernel combines "all" with the device's own value, both must be as wanted.
var interfaceSettings = perInterface(
	"rp_filter", "0", // asymmetric paths are ordinary in a cluster
	"send_redirects", "0", // a node that forwards a packet out of the device it came by is no mistake
	"accept_redirects", "0",
	"route_localnet", "0", // proxiers that need it set it; that must be seen to work
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

// promptSettings keep a host from holding back ICMP errors, of which tests look at every one. An empty mask exempts all
// kinds from both limits that the kernel has, per peer and per machine; 255 is a kind of ICMPv6 that does not exist.
// And a dead server's connections do not keep its namespace alive for minutes.
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

// addressSettings leave IPv6 addresses to the lab. The kernel makes up none for the devices to come, neither from the
// MAC nor from router advertisements, so it does not ask for any and nothing stirs on the wires by itself.
// (addr_gen_mode is for nodes and hosts. On a pod's one device it is set with the device, link.Quiet, which is
// cheaper.)
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

// noRouterSolicitation keeps a device that got its link-local address from looking for routers.
var noRouterSolicitation = netns.Setting{Key: "net.ipv6.conf.default.accept_ra", Value: "0"}

// forwardSettings make a router. They come first, because switching forwarding resets some of the others. Where it has
// several ways to go, ports decide: what decides by default is the flow label in IPv6, which Linux changes in the
// middle of a connection whenever it sends a segment again (sk_rethink_txhash), and addresses alone in IPv4.
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

// bridgeSettings say whether bridged packets pass the rules of IP.
func bridgeSettings(value string, optional bool) []netns.Setting {
	return []netns.Setting{
		{Key: "net.bridge.bridge-nf-call-iptables", Value: value, Optional: optional},
		{Key: "net.bridge.bridge-nf-call-ip6tables", Value: value, Optional: optional},
		{Key: "net.bridge.bridge-nf-call-arptables", Value: "0", Optional: true},
	}
}

// trackingSettings concern connection tracking. They are there once the first rule has made the kernel load it.
var trackingSettings = []netns.Setting{
	{Key: "net.netfilter.nf_conntrack_acct", Value: "1", Optional: true},
	// 2, the default, misses flows older than the listener
	{Key: "net.netfilter.nf_conntrack_events", Value: "1", Optional: true},
	{Key: "net.netfilter.nf_conntrack_tcp_be_liberal", Value: "0", Optional: true},
	{Key: "net.netfilter.nf_conntrack_tcp_loose", Value: "1", Optional: true},
	{Key: "net.netfilter.nf_conntrack_checksum", Value: "1", Optional: true},
	{Key: "net.netfilter.nf_conntrack_log_invalid", Value: "0", Optional: true},
}

// settings are the sysctls that each kind of machine must be given, beyond what a new namespace has.
type settings struct{ node, tracking, router, client, pod []netns.Setting }

// newSettings works them out in a namespace that is as new as theirs will be.
func newSettings(fresh *netns.NS, t Topology) (settings, error) {
	host := join(interfaceSettings, promptSettings(t.Stack), addressSettings(t.Stack))
	s := settings{
		client:   host,
		router:   join(forwardSettings(t.Stack), host),
		pod:      promptSettings(t.Stack),
		tracking: trackingSettings,
	}
	s.node = s.router
	if t.PodNetwork == Bridge {
		if err := bridgeFilter(fresh); err != nil {
			return settings{}, err
		}
		s.node = join(s.node, bridgeSettings("1", false))
	}
	if t.Stack != IPv4 {
		s.pod = append(s.pod, noRouterSolicitation)
	}
	lacking, err := fresh.UnmetSettings(s.node) // which has all that the others have
	if err != nil {
		return settings{}, fmt.Errorf("read the settings of a new namespace: %w", err)
	}
	given := func(s netns.Setting) bool { return !slices.Contains(lacking, s) }
	for _, group := range []*[]netns.Setting{&s.client, &s.router, &s.node, &s.pod} {
		*group = slices.DeleteFunc(slices.Clone(*group), given)
	}
	return s, nil
}

// bridgeFilter says whether packets that a bridge forwards can be shown to the rules of IP.
func bridgeFilter(ns *netns.NS) error {
	if _, err := ns.Sysctl("net.bridge.bridge-nf-call-iptables"); err != nil {
		return fmt.Errorf("pods on a bridge: the kernel's br_netfilter is not loaded (modprobe br_netfilter; routed pods "+
			"do without): %w", err)
	}
	return nil
}

func join(groups ...[]netns.Setting) []netns.Setting {
	var out []netns.Setting
	for _, g := range groups {
		out = append(out, g...)
	}
	return out
}
