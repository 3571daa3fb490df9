// SPDX-License-Identifier: Apache-2.0

package given

import (
	"context"
	"net/netip"
	"strconv"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/suite/spec"
)

// hostPortChain is where portmap has its rules, one for each port of a pod.
const hostPortChain = "CNI-HOSTPORT-DNAT"

// Portmap prepares a node for host ports as the CNI plugin of that name does. It takes a cluster of its own.
func Portmap(node string) spec.Action {
	return onEachFamily("prepare host ports on "+node, func(ctx context.Context, w spec.World, f lab.Family) error {
		for _, rule := range [][]string{
			{"-N", hostPortChain},
			{"-A", "PREROUTING", "-m", "addrtype", "--dst-type", "LOCAL", "-j", hostPortChain},
			{"-A", "OUTPUT", "-m", "addrtype", "--dst-type", "LOCAL", "-j", hostPortChain},
		} {
			if err := nat(ctx, w, node, f, rule...); err != nil {
				return err
			}
		}
		return nil
	})
}

// MapPort makes a port of a node's address that of a pod there, which serves it on 8080.
func MapPort(at spec.Target, proto, pod string) spec.Action {
	return onEachFamily("map a host port to "+pod, func(ctx context.Context, w spec.World, f lab.Family) error {
		from, err := w.Resolve(at, f, proto)
		if err != nil {
			return err
		}
		h, err := w.Host(pod)
		if err != nil {
			return err
		}
		return nat(ctx, w, at.Host, f, "-A", hostPortChain, "-p", proto, "-d", from.Addr().String(), "--dport",
			strconv.Itoa(int(from.Port())),
			"-j", "DNAT", "--to-destination", netip.AddrPortFrom(h.Addr(f), 8080).String())
	})
}

func onEachFamily(name string, do func(context.Context, spec.World, lab.Family) error) spec.Action {
	return spec.Action{Name: name, Run: func(ctx context.Context, w spec.World) error {
		for _, f := range w.Lab().Stack().Families() {
			if err := do(ctx, w, f); err != nil {
				return err
			}
		}
		return nil
	}}
}

// nat changes the nat table of a node.
func nat(ctx context.Context, w spec.World, node string, f lab.Family, args ...string) error {
	_, err := w.Run(ctx, node, append([]string{IPTables(w, f), "-w", "-t", "nat"}, args...)...)
	return err
}
