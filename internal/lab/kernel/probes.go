// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/lab/sctp"
	"github.com/viplab/viplab/lab/netns"
)

// try is how a probe finds out.
type try func(context.Context, *netns.NS) (string, error)

// Probes returns all questions, the most basic first.
func Probes() []Probe {
	all := []Probe{
		{Feature: "network namespaces", For: "everything", Required: true, try: nothing,
			Cure: "run with sudo; in a container: docker run --privileged"},
		{Feature: "user namespaces", For: "working without root", bare: true, try: userNamespace,
			Cure: "run with sudo, or see docs/development.md"},
		{Feature: "SCTP in user space", For: "scenarios of SCTP", try: ownSCTP,
			Cure: "sudo rmmod sctp, while nobody uses it"},
	}
	for _, p := range []struct {
		feature  Feature
		module   string
		required bool
		purpose  string
		try      try
	}{
		{"veth", "veth", true, "everything", device(&netlink.Veth{LinkAttrs: named(), PeerName: "peer"})},
		{"bridge", "bridge", true, "the network between nodes, pods on a bridge",
			device(&netlink.Bridge{LinkAttrs: named()})},
		{"br_netfilter", "br_netfilter", false, "pods on a bridge", bridgeNetfilter},
		{"vxlan", "vxlan", false, "overlay vxlan", device(&netlink.Vxlan{LinkAttrs: named(), VxlanId: 1, Port: 4789})},
		{"ipip", "ipip", false, "overlay ipip",
			device(&netlink.Iptun{LinkAttrs: named(), Local: net.IPv4(192, 0, 2, 1)})},
		{"ip6tnl", "ip6_tunnel", false, "overlay ipip for IPv6",
			device(&netlink.Ip6tnl{LinkAttrs: named(), Local: net.ParseIP("2001:db8::1")})},
		{"dummy", "dummy", false, "proxier ipvs", device(&netlink.Dummy{LinkAttrs: named()})},
		{"ip_vs", "ip_vs", false, "proxier ipvs", virtualServer},
		{"packet sockets", "af_packet", true, "captures, proofs of silence", socket(unix.AF_PACKET, unix.SOCK_RAW, 0)},
		{"conntrack events", "nf_conntrack_netlink", true, "proofs by conntrack entry", conntrackEvents},
		{"nf_tables nat", "nft_chain_nat", false, "proxier nftables", nftNAT},
		{"nftrace", "nf_tables", false, "trace", nftTrace},
		{"ip sets", "ip_set_hash_net", false, "network policies, proxiers iptables and ipvs", ipSet},
		{"ip sets in rules", "xt_set", false, "network policies, proxiers iptables and ipvs", ipSetRule},
		{"iptables-nft rules", "nft_compat", true, "proxier iptables", rules("iptables-nft")},
		{"ip6tables-nft rules", "nft_compat", false, "proxier iptables", rules("ip6tables-nft")},
		{"iptables-legacy rules", "iptable_nat", false, "proxier iptables-legacy", rules("iptables-legacy")},
		{"ip6tables-legacy rules", "ip6table_nat", false, "proxier iptables-legacy", rules("ip6tables-legacy")},
	} {
		all = append(all, Probe{Feature: p.feature, Module: p.module, Required: p.required, For: p.purpose, try: p.try})
	}
	for _, p := range []struct {
		program, pkg string
		required     bool
		purpose      string
	}{
		{"iptables-nft", "iptables", true, "proxier iptables"},
		{"iptables-legacy", "iptables", false, "proxier iptables-legacy"},
		{"nft", "nftables", false, "proxier nftables, trace"},
		{"ipset", "ipset", false, "network policies, proxier ipvs"},
		{"conntrack", "conntrack", false, "the real kube-proxy"},
		{"ipvsadm", "ipvsadm", false, "looking at proxier ipvs"},
		{"ip", "iproute2", false, "looking around in a lab"},
		{"curl", "curl", false, "lesson 12"},
		{"jq", "jq", false, "lesson 12"},
		{"tcpdump", "tcpdump", false, "lesson 11"},
		{"qemu-system-x86_64", "qemu-system-x86", false, "the virtual machine"},
	} {
		all = append(all, Probe{
			Feature: Feature(p.program), Package: p.pkg, Required: p.required, For: p.purpose, bare: true,
			try: func(ctx context.Context, _ *netns.NS) (string, error) { return programVersion(ctx, p.program) },
		})
	}
	return all
}

func nothing(context.Context, *netns.NS) (string, error) { return "", nil }

func named() netlink.LinkAttrs {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "probe0"
	return attrs
}

// device tries to make a network device.
func device(l netlink.Link) try {
	return func(_ context.Context, ns *netns.NS) (string, error) { return "", lacking(ns.Netlink().LinkAdd(l)) }
}

// bridgeNetfilter looks for the settings of the module. The match physdev of iptables makes the kernel load it.
func bridgeNetfilter(ctx context.Context, ns *netns.NS) (string, error) {
	const setting = "net.bridge.bridge-nf-call-iptables"
	if _, err := ns.Sysctl(setting); err == nil {
		return "", nil
	}
	// If this fails, the setting does not exist.
	_, _ = runIn(ctx, ns, "", "iptables-nft", "-A", "FORWARD", "-m", "physdev", "--physdev-is-bridged")
	_, err := ns.Sysctl(setting)
	return "", lacking(err)
}

// socket opens a socket.
func socket(domain, typ, proto int) try {
	return func(_ context.Context, ns *netns.NS) (string, error) {
		fd, err := ns.Socket(domain, typ, proto)
		if err != nil {
			return "", lacking(err)
		}
		return "", unix.Close(fd)
	}
}

// ownSCTP looks whether the kernel leaves associations to viplab's own SCTP. It opens no socket: that
// would make the kernel load its SCTP.
func ownSCTP(context.Context, *netns.NS) (string, error) {
	if err := sctp.Available(); err != nil {
		return "", &lack{err.Error()}
	}
	return "", nil
}

// userNamespace starts a process in one.
func userNamespace(ctx context.Context, _ *netns.NS) (string, error) {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "--version")
	cmd.SysProcAttr = ownUserNamespace()
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return "", nil // it was started, which is all that is asked
	}
	if errors.Is(err, unix.EINVAL) {
		return "", &lack{err.Error()}
	}
	return "", err
}

// programVersion returns the first line of a program's version. One that tells none (ipvsadm) is there all the same.
func programVersion(ctx context.Context, name string) (string, error) {
	path, err := lookUp(name)
	if err != nil {
		return "", &lack{"not installed"}
	}
	option := "--version"
	if name == "ip" {
		option = "-V"
	}
	out, err := exec.CommandContext(ctx, path, option).Output()
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err != nil {
		return "tells no version", nil
	}
	return line, nil
}

// lookUp finds a program also where the PATH of an unprivileged shell does not lead.
func lookUp(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	if os.Getenv("PATH") == "" {
		return "", exec.ErrNotFound
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", exec.ErrNotFound
}
