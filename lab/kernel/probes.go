package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

const (
	loadModule = "load the module (sudo modprobe %s), or use a kernel that has it: scripts/vm"
	install    = "sudo scripts/setup, or: sudo apt-get install %s"
)

// Probes are all questions, the most basic first.
func Probes() []Probe {
	var all []Probe
	kernel := func(f Feature, purpose string, try func(context.Context, *netns.NS) (string, error)) *Probe {
		all = append(all, Probe{Feature: f, For: purpose, Cure: fmt.Sprintf(loadModule, f), InVM: true, try: try})
		return &all[len(all)-1]
	}
	program := func(name, pkg, purpose string) *Probe {
		all = append(all, Probe{Feature: Feature(name), For: purpose, Cure: fmt.Sprintf(install, pkg), bare: true,
			try: func(ctx context.Context, _ *netns.NS) (string, error) { return programVersion(ctx, name) }})
		return &all[len(all)-1]
	}

	p := kernel("network namespaces", "everything", func(context.Context, *netns.NS) (string, error) { return "", nil })
	p.Required, p.Cure = true, "run with sudo; in a container: docker run --privileged"
	p = kernel("user namespaces", "working without root", userNamespace)
	p.bare, p.Cure = true, "run with sudo, or see docs/development.md"

	kernel("veth", "everything", device(&netlink.Veth{LinkAttrs: named(), PeerName: "peer"})).Required = true
	kernel("bridge", "the network between nodes; pods on a bridge", device(&netlink.Bridge{LinkAttrs: named()})).Required = true
	kernel("br_netfilter", "pods on a bridge (--pods bridge)", bridgeNetfilter)
	kernel("vxlan", "overlay vxlan", device(&netlink.Vxlan{LinkAttrs: named(), VxlanId: 1, Port: 4789}))
	kernel("ipip", "overlay ipip", device(&netlink.Iptun{LinkAttrs: named(), Local: net.IPv4(192, 0, 2, 1)}))
	kernel("ip6tnl", "overlay ipip for IPv6", device(&netlink.Ip6tnl{LinkAttrs: named(), Local: net.ParseIP("2001:db8::1")}))
	kernel("dummy", "proxier ipvs", device(&netlink.Dummy{LinkAttrs: named()}))
	kernel("ip_vs", "proxier ipvs", virtualServer)
	kernel("sctp", "Services with protocol SCTP", sctpSocket)
	kernel("nf_tables nat", "proxiers iptables and nftables", nftNAT)
	kernel("nftrace", "trace", nftTrace)
	kernel("packet sockets", "captures, proofs of silence", packetSocket).Required = true
	p = kernel("conntrack events", "proofs by conntrack entry", conntrackEvents)
	p.Required, p.Cure = true, fmt.Sprintf(loadModule, "nf_conntrack_netlink")

	for _, family := range []string{"iptables", "ip6tables"} {
		p = kernel(Feature(family+"-nft rules"), "proxier iptables", rules(family+"-nft"))
		p.Required, p.Cure = family == "iptables", fmt.Sprintf(loadModule, "nft_compat")
		p = kernel(Feature(family+"-legacy rules"), "proxier iptables-legacy", rules(family+"-legacy"))
		p.Cure = fmt.Sprintf(loadModule, map[string]string{"iptables": "iptable_nat", "ip6tables": "ip6table_nat"}[family])
	}
	kernel("ip sets", "network policies, proxier ipvs", ipSet).Cure = fmt.Sprintf(loadModule, "ip_set_hash_net")

	program("ip", "iproute2", "looking around in a lab")
	program("iptables-nft", "iptables", "proxier iptables").Required = true
	program("iptables-legacy", "iptables", "proxier iptables-legacy")
	program("nft", "nftables", "proxier nftables, trace")
	program("ipset", "ipset", "network policies, proxier ipvs")
	program("conntrack", "conntrack", "real kube-proxy")
	program("ipvsadm", "ipvsadm", "looking at proxier ipvs")
	program("qemu-system-x86_64", "qemu-system-x86", "running in the virtual machine what this kernel cannot")
	return all
}

func named() netlink.LinkAttrs {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "probe0"
	return attrs
}

// device tries to make a network device.
func device(l netlink.Link) func(context.Context, *netns.NS) (string, error) {
	return func(_ context.Context, ns *netns.NS) (string, error) { return "", lacking(ns.Netlink().LinkAdd(l)) }
}

// bridgeNetfilter looks for the settings that the module adds to a namespace. Nothing loads it by itself but the match
// physdev of iptables, so that is tried first.
func bridgeNetfilter(ctx context.Context, ns *netns.NS) (string, error) {
	const setting = "net.bridge.bridge-nf-call-iptables"
	if _, err := ns.Sysctl(setting); err == nil {
		return "", nil
	}
	// An error here is told by the setting's absence.
	_, _ = runIn(ctx, ns, "", "iptables-nft", "-A", "FORWARD", "-m", "physdev", "--physdev-is-bridged")
	_, err := ns.Sysctl(setting)
	return "", lacking(err)
}

func sctpSocket(_ context.Context, ns *netns.NS) (string, error) {
	fd, err := ns.Socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP)
	if err != nil {
		return "", lacking(err)
	}
	return "", unix.Close(fd)
}

func packetSocket(_ context.Context, ns *netns.NS) (string, error) {
	fd, err := ns.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	if err != nil {
		return "", lacking(err)
	}
	return "", unix.Close(fd)
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

// programVersion asks a program for its version: the first line that it prints. One that does not tell (ipvsadm wants
// its kernel module first) is there all the same.
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
