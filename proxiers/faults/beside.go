package faults

import (
	"context"
	"errors"
	"net"

	mdlayher "github.com/mdlayher/netlink"
	"github.com/ti-mo/conntrack"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/kube"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/suite/spec"
)

// besides are faults in what becomes of a node beside the rules.
var besides = []Fault{
	{
		Name: "clusterip-on-device", Breaks: "ClusterIPs are configured on a device of every node, which then answers for them.",
		Rows: []string{"clusterip-is-virtual"},
		Node: func(_ context.Context, node spec.Node, s *kube.Snapshot) error {
			h := node.Host.Netlink()
			lo, err := h.LinkByName("lo")
			if err != nil {
				return err
			}
			for _, svc := range s.Services {
				for _, text := range svc.Spec.ClusterIPs {
					ip := net.ParseIP(text)
					bits := 8 * len(ip)
					if v4 := ip.To4(); v4 != nil {
						ip, bits = v4, 32
					}
					err := h.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(bits, bits)}})
					if err != nil && !errors.Is(err, unix.EEXIST) {
						return err
					}
				}
			}
			return nil
		},
	},
	{
		Name: "connections-forgotten", Breaks: "Connection tracking is emptied at each change.",
		On: kubeRules, Rows: []string{"clusterip-one-connection-one-endpoint"}, // a relay takes its connections up again
		Node: func(_ context.Context, node spec.Node, _ *kube.Snapshot) error {
			c, err := conntrack.Dial(&mdlayher.Config{NetNS: node.Host.NS.Fd()})
			if err != nil {
				return err
			}
			return errors.Join(c.Flush(), c.Close())
		},
	},
	{
		Name: "loopback-not-routed", Breaks: "Packets to 127.0.0.1 that have been translated do not leave the node.",
		On: ownJumps, Rows: []string{"nodeport-localhost"},
		Node: sysctls(netns.Setting{Key: "net.ipv4.conf.all.route_localnet", Value: "0"}),
	},
	{
		Name: "no-forwarding", Breaks: "The node forwards no packets.",
		Rows: []string{"nodeport-node-without-endpoint"},
		Node: sysctls(
			netns.Setting{Key: "net.ipv4.ip_forward", Value: "0"}, netns.Setting{Key: "net.ipv6.conf.all.forwarding", Value: "0"},
		),
	},
}

// sysctls sets sysctls of the node.
func sysctls(settings ...netns.Setting) func(context.Context, spec.Node, *kube.Snapshot) error {
	return func(_ context.Context, node spec.Node, _ *kube.Snapshot) error {
		return node.Host.SetSysctls(settings...)
	}
}
