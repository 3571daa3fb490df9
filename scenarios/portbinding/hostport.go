package portbinding

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/kube"
	. "github.com/viplab/viplab/scenarios/given"
	"github.com/viplab/viplab/suite/spec"
)

// hostPort is the port that three pods have on the same node.
const hostPort = 30050

// hostPorts has a cluster of its own, for its rules.
var hostPorts = spec.Scenario{
	ID: "pb-hostport-coexistence", Group: "port-binding", Priority: spec.P0, Own: &spec.Own{Nodes: []string{"n1"}},
	Source: "e2e hostport.go 'validates that there is no conflict between pods with same hostPort but different hostIP and protocol'; the CNI plugin portmap",
	Why:    "Pods with the same hostPort, told apart by hostIP and protocol, are reached each, and NodePorts as ever: what the network plugin and the proxier program does not collide.",
	Needs:  []spec.Feature{spec.NodePort},
	Given: []kube.Object{
		Pod("p1", "n1", TCP(8080)), Pod("p2", "n1", TCP(8080)), Pod("p3", "n1", UDP(8080)), Backend("a2", "n2"), at(30051),
	},
	Steps: []spec.Step{{
		Do: []spec.Action{
			portmap("n1"), mapPort("p1", "tcp", spec.Primary), mapPort("p2", "tcp", spec.Secondary), mapPort("p3", "udp", spec.Primary),
			Apply(Service("later", Selecting("web"), NodePort())), // which makes proxiers sync after the plugin
		},
		Rows: []spec.Row{
			{From: "client", To: spec.HostAt("n1", hostPort), Times: 3, By: []string{"p1"}},
			{From: "client", To: spec.HostAt("n1", hostPort).On(spec.Secondary), Times: 3, By: []string{"p2"}},
			{From: "client", To: spec.HostAt("n1", hostPort), Proto: "udp", Times: 3, By: []string{"p3"}},
			{From: "client", To: spec.HostAt("n2", hostPort), Want: spec.Refused},
			{From: "client", To: spec.HostAt("n1", 30051), Times: 3, By: []string{"a2"}},
			{From: "client", To: spec.NodePortAt("n1", "later", 80), Times: 3, By: []string{"a2"}},
		},
	}},
}

// hostPortChain is where portmap has its rules, one for each port of a pod.
const hostPortChain = "CNI-HOSTPORT-DNAT"

// portmap prepares a node as the CNI plugin of that name does.
func portmap(node string) spec.Action {
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

// mapPort gives a pod of n1 the hostPort at one of the node's addresses.
func mapPort(pod, proto string, which spec.Which) spec.Action {
	return onEachFamily("map a host port to "+pod, func(ctx context.Context, w spec.World, f lab.Family) error {
		from, err := w.Resolve(spec.HostAt("n1", hostPort).On(which), f, proto)
		if err != nil {
			return err
		}
		h, err := w.Host(pod)
		if err != nil {
			return err
		}
		return nat(ctx, w, "n1", f, "-A", hostPortChain, "-p", proto, "-d", from.Addr().String(), "--dport", fmt.Sprint(hostPort),
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
