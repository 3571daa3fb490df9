// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"os/exec"
	"slices"

	"github.com/moby/ipvs"
	"github.com/vishvananda/netlink"

	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/suite/spec"
)

// virtualServers are the proxiers that use IPVS.
var virtualServers = []string{"ipvs", "kube-proxy-ipvs"}

// ipvsFaults break virtual servers, their addresses and their rules.
var ipvsFaults = []Fault{
	{Name: "other-scheduler",
		Description: "Virtual servers use the scheduler sh, whatever is configured.",
		Proxiers:    virtualServers,
		Node: eachServer(func(h *ipvs.Handle, s *ipvs.Service) error {
			s.SchedName = "sh"
			return h.UpdateService(s)
		})},
	{Name: "persistence-lost",
		Description: "Virtual servers do not remember the clients of Services with session affinity.",
		Proxiers:    []string{"kube-proxy-ipvs"},
		Node: eachServer(func(h *ipvs.Handle, s *ipvs.Service) error {
			const persistent = 0x1 // linux/ip_vs.h
			s.Flags &^= persistent
			return h.UpdateService(s)
		})},
	{Name: "ipvs-addresses-lost", Description: "The addresses of Services are not on kube-ipvs0.",
		Proxiers: virtualServers, Node: func(_ context.Context, node spec.Node, _ *store.Snapshot) error {
			h := node.Host.Netlink()
			device, err := h.LinkByName("kube-ipvs0")
			if err != nil {
				return err
			}
			all, err := netns.List(func() ([]netlink.Addr, error) { return h.AddrList(device, netlink.FAMILY_ALL) })
			for i := 0; err == nil && i < len(all); i++ {
				err = h.AddrDel(device, &all[i])
			}
			return err
		}},
	{Name: "foreign-virtual-servers-removed",
		Description: "Virtual servers that belong to no Service are removed, whoever has made them.",
		Proxiers:    virtualServers,
		Config:      func(c *spec.ProxyConfig) { c.IPVSExcludeCIDRs = nil }, Node: removeForeign},
	{Name: "ipvs-refusals-lost", Description: "What should be refused vanishes in silence, by virtual servers.",
		Proxiers: virtualServers, Node: func(ctx context.Context, node spec.Node, _ *store.Snapshot) error {
			return node.Host.Run(exec.CommandContext(ctx, "nft", `add table inet silent; delete table inet silent
				add table inet silent; add chain inet silent out { type filter hook output priority 300; }
				add rule inet silent out icmp type destination-unreachable drop
				add rule inet silent out icmpv6 type destination-unreachable drop`))
		}},
	{Name: "ipvs-access-open", Description: "Daemons of the node answer on the addresses of Services.",
		Proxiers: virtualServers,
		// It is not dropped, because the built-in proxier would detect that and write it again.
		Text: []Rewrite{{XTables, `^(-A KUBE-IPVS-FILTER .*)-j REJECT.*`, "$1-j RETURN"}}},
}

// removeForeign removes virtual servers on ports below those of NodePorts, but for those on the device of Services.
func removeForeign(ctx context.Context, node spec.Node, applied *store.Snapshot) error {
	h := node.Host.Netlink()
	device, err := h.LinkByName("kube-ipvs0")
	if err != nil {
		return err
	}
	all, err := netns.List(func() ([]netlink.Addr, error) { return h.AddrList(device, netlink.FAMILY_ALL) })
	if err != nil {
		return err
	}
	return eachServer(func(h *ipvs.Handle, s *ipvs.Service) error {
		ours := slices.ContainsFunc(all, func(a netlink.Addr) bool { return a.IP.Equal(s.Address) })
		if ours || s.Port >= 30000 {
			return nil
		}
		return h.DelService(s)
	})(ctx, node, applied)
}

func eachServer(change func(*ipvs.Handle, *ipvs.Service) error) func(context.Context, spec.Node,
	*store.Snapshot) error {
	return func(_ context.Context, node spec.Node, _ *store.Snapshot) error {
		return node.Host.NS.Do(func() error {
			h, err := ipvs.New("") // in the namespace of the thread
			if err != nil {
				return fmt.Errorf("open IPVS: %w", err)
			}
			defer h.Close()
			all, err := h.GetServices()
			for i := 0; err == nil && i < len(all); i++ {
				err = change(h, all[i])
			}
			return err
		})
	}
}
