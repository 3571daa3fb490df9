// SPDX-License-Identifier: Apache-2.0

// Command cni is a small CNI plugin: it connects a pod to its node with a veth pair and a route for each address. The
// runtime chooses the addresses ("ips" in runtimeConfig, see CONVENTIONS.md of the CNI specification).
package main

import (
	"encoding/json"
	"fmt"
	"net"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

func main() {
	skel.PluginMainFuncs(skel.CNIFuncs{Add: add, Del: del}, version.All, "a veth pair with a route for each address")
}

// config is the plugin's configuration.
type config struct {
	types.NetConf
	RuntimeConfig struct {
		IPs []string `json:"ips"`
	} `json:"runtimeConfig"`
}

// gateways are the addresses of every pod's gateway, the other end of its veth pair.
var gateways = []*netlink.Addr{gateway("169.254.1.1/32"), gateway("fe80::1/64")}

func gateway(prefix string) *netlink.Addr {
	a, err := netlink.ParseAddr(prefix)
	if err != nil {
		panic(err)
	}
	a.Flags = noDAD
	return a
}

// noDAD is IFA_F_NODAD of linux/if_addr.h: the address works at once.
const noDAD = 0x02

// hostDevice is the name of the node's end of the pair. Names of devices have at most 15 characters.
func hostDevice(args *skel.CmdArgs) string { return fmt.Sprintf("pod%.12s", args.ContainerID) }

func add(args *skel.CmdArgs) error {
	var c config
	if err := json.Unmarshal(args.StdinData, &c); err != nil {
		return types.NewError(types.ErrDecodingFailure, "the configuration is no JSON", err.Error())
	}
	if len(c.RuntimeConfig.IPs) == 0 {
		return types.NewError(types.ErrInvalidNetworkConfig, "runtimeConfig.ips is empty",
			"the runtime chooses addresses")
	}
	var ips []*net.IPNet
	for _, text := range c.RuntimeConfig.IPs {
		ip, err := netlink.ParseIPNet(text)
		if err != nil {
			return types.NewError(types.ErrInvalidNetworkConfig, "runtimeConfig.ips: "+text, err.Error())
		}
		ips = append(ips, ip)
	}
	pod, err := netns.GetFromPath(args.Netns)
	if err != nil {
		return fmt.Errorf("open %s: %w", args.Netns, err)
	}
	defer pod.Close()
	if err := connect(hostDevice(args), args.IfName, pod, ips); err != nil {
		_ = del(args) // as the specification asks for after an error; that error is the one to report
		return err
	}
	inPod := &current.Interface{Name: args.IfName, Sandbox: args.Netns}
	result := current.Result{CNIVersion: c.CNIVersion, Interfaces: []*current.Interface{inPod}}
	for _, ip := range ips {
		result.IPs = append(result.IPs, &current.IPConfig{Interface: current.Int(0), Address: *ip})
	}
	return types.PrintResult(&result, c.CNIVersion)
}

// connect makes the pair and configures both ends. The pod's end is ready when the node's is up.
func connect(host, inPod string, pod netns.NsHandle, ips []*net.IPNet) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = host
	pair := &netlink.Veth{LinkAttrs: attrs, PeerName: inPod, PeerNamespace: netlink.NsFd(pod)}
	if err := netlink.LinkAdd(pair); err != nil {
		return fmt.Errorf("make the veth pair %s: %w", host, err)
	}
	if err := up(&netlink.Handle{}, host, gateways); err != nil {
		return err
	}
	inside, err := netlink.NewHandleAt(pod)
	if err != nil {
		return fmt.Errorf("enter the pod: %w", err)
	}
	defer inside.Close()
	var own []*netlink.Addr
	for _, ip := range ips {
		own = append(own, &netlink.Addr{IPNet: ip, Flags: noDAD})
	}
	if err := up(inside, inPod, own); err != nil {
		return err
	}
	link, err := inside.LinkByName(inPod)
	if err != nil {
		return err
	}
	for _, ip := range ips {
		via := gateways[0].IP
		if ip.IP.To4() == nil {
			via = gateways[1].IP
		}
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: via, Flags: int(netlink.FLAG_ONLINK)}
		if err := inside.RouteAdd(route); err != nil {
			return fmt.Errorf("the pod's default route via %s: %w", via, err)
		}
		back := &netlink.Route{LinkIndex: pair.Index, Dst: ip, Scope: netlink.SCOPE_LINK}
		if err := netlink.RouteAdd(back); err != nil {
			return fmt.Errorf("the node's route to %s: %w", ip, err)
		}
	}
	return nil
}

// up gives addresses to a device and sets it up.
func up(h *netlink.Handle, name string, addrs []*netlink.Addr) error {
	link, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	for _, a := range addrs {
		if err := h.AddrAdd(link, a); err != nil {
			return fmt.Errorf("add %s to %s: %w", a, name, err)
		}
	}
	return h.LinkSetUp(link)
}

// del removes the pair, and with it all routes. A pair that is not there is no error: the runtime may call again.
func del(args *skel.CmdArgs) error {
	link, err := netlink.LinkByName(hostDevice(args))
	if _, missing := err.(netlink.LinkNotFoundError); missing {
		return nil
	}
	if err != nil {
		return err
	}
	return netlink.LinkDel(link)
}
