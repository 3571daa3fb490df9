package lab

import "github.com/viplab/viplab/lab/netns"

// A new namespace takes part of its IPv4 settings from the machine's first namespace (rp_filter, forwarding, arp_*...),
// whatever an administrator made of them. So everything that a packet can notice is written, not assumed.

// interfaceSettings are those that IPv4 has per device: "all", the devices to come, and the loopback that is there.
// Where the kernel combines "all" with the device's own value, both must be as wanted.
var interfaceSettings = perInterface(
	"rp_filter", "0", // asymmetric paths are ordinary in a cluster
	"send_redirects", "0", // a node that forwards a frame out of the port it came by is no mistake
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

// promptSettings keep hosts from holding back answers: tests look at every one.
var promptSettings = []netns.Setting{
	{Key: "net.ipv4.icmp_ratelimit", Value: "0"},
	// Since Linux 6.13 or so each namespace has these limits of its own; before, they are the machine's.
	{Key: "net.ipv4.icmp_msgs_per_sec", Value: "1000000", Optional: true},
	{Key: "net.ipv4.icmp_msgs_burst", Value: "1000000", Optional: true},
	{Key: "net.ipv4.icmp_echo_ignore_all", Value: "0"},
	{Key: "net.ipv4.tcp_orphan_retries", Value: "1"}, // a killed server's connections do not linger for minutes
}

// trackingSettings concern connection tracking. They are there once the first rule has made the kernel load it.
var trackingSettings = []netns.Setting{
	{Key: "net.netfilter.nf_conntrack_acct", Value: "1", Optional: true},
	{Key: "net.netfilter.nf_conntrack_events", Value: "1", Optional: true}, // 2, the default, misses flows older than the listener
	{Key: "net.netfilter.nf_conntrack_tcp_be_liberal", Value: "0", Optional: true},
	{Key: "net.netfilter.nf_conntrack_tcp_loose", Value: "1", Optional: true},
	{Key: "net.netfilter.nf_conntrack_checksum", Value: "1", Optional: true},
	{Key: "net.netfilter.nf_conntrack_log_invalid", Value: "0", Optional: true},
}

// ipv6Settings switch IPv6 off where the lab has none, so that nothing stirs on the wires, and else leave the addresses
// to the lab: none is made up from router advertisements or the MAC, none waits for duplicate address detection.
func ipv6Settings(s Stack) []netns.Setting {
	if s == IPv4 {
		return []netns.Setting{{Key: "net.ipv6.conf.all.disable_ipv6", Value: "1", Optional: true}}
	}
	return []netns.Setting{
		{Key: "net.ipv6.conf.all.disable_ipv6", Value: "0"},
		{Key: "net.ipv6.conf.default.addr_gen_mode", Value: "1"},
		{Key: "net.ipv6.conf.default.accept_dad", Value: "0"},
		{Key: "net.ipv6.conf.default.accept_ra", Value: "0"},
		{Key: "net.ipv6.conf.default.accept_redirects", Value: "0"},
		{Key: "net.ipv6.icmp.ratelimit", Value: "0"},
	}
}

// forwardSettings make a router. They come first, because switching forwarding resets some of the others.
func forwardSettings(s Stack) []netns.Setting {
	out := []netns.Setting{{Key: "net.ipv4.ip_forward", Value: "1"}}
	if s != IPv4 {
		out = append(out, netns.Setting{Key: "net.ipv6.conf.all.forwarding", Value: "1"})
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

// podSettings are few, because there are many pods, and a pod forwards nothing and has one device.
var podSettings = []netns.Setting{
	{Key: "net.ipv4.conf.all.accept_redirects", Value: "0"},
	{Key: "net.ipv4.icmp_ratelimit", Value: "0"},
	{Key: "net.ipv4.icmp_msgs_per_sec", Value: "1000000", Optional: true},
	{Key: "net.ipv4.tcp_orphan_retries", Value: "1"},
}

func join(groups ...[]netns.Setting) []netns.Setting {
	var out []netns.Setting
	for _, g := range groups {
		out = append(out, g...)
	}
	return out
}

// settings are the sysctls of each kind of machine, worked out once per lab.
type settings struct{ node, router, host, pod, underlay []netns.Setting }

func newSettings(t Topology) settings {
	s := settings{
		router:   join(forwardSettings(t.Stack), interfaceSettings, promptSettings, ipv6Settings(t.Stack)),
		host:     join(interfaceSettings, promptSettings, ipv6Settings(t.Stack)),
		underlay: join(bridgeSettings("0", true), ipv6Settings(IPv4)),
	}
	s.node = s.router
	if t.PodNetwork == Bridge {
		s.node = join(s.node, bridgeSettings("1", false))
	}
	s.pod = join(podSettings, ipv6Settings(t.Stack))
	return s
}
