package faults

import (
	"context"
	"errors"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/kube"
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
}
