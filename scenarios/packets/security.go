// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/traffic"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// security returns the scenarios of what a client must not get from a node, or through it.
func security() []spec.Scenario {
	return []spec.Scenario{
		{
			ID:      "sec-localnet-only-when-needed",
			Cluster: &spec.ClusterConfig{Proxy: spec.ProxyConfig{NoLocalhostNodePorts: true}, Nodes: []string{"n1"}},
			Needs:   []spec.Feature{spec.NodePort},
			Given:   []store.Object{Backend("a2", "n2"), Service("web", NodePort())},
			Steps: []spec.Step{{
				Rows: []spec.Row{{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a2"}}},
				Check: func(_ context.Context, w spec.World) error {
					if on := spec.Must(spec.Must(w.Host("n1")).Sysctl(routeLocalnet)); on != "0" {
						return fmt.Errorf("%s is %s on n1", routeLocalnet, on)
					}
					return nil
				},
			}},
		},
		// The hazard is one of the API: a user who may create Services may take any address. A proxier may prevent it.
		{
			ID: "sec-externalip-hijack", Needs: []spec.Feature{spec.ClusterIP, spec.ExternalIPs},
			Given: []store.Object{
				Pod("c1", "n1"), Pod("victim", "n2", TCP(8080)), Backend("thief", "n3"),
			},
			Steps: []spec.Step{
				{Name: "before", Rows: []spec.Row{{From: "c1", To: spec.HostAt("victim", 8080),
					Servers: []string{"victim"}}}},
				{Name: "a Service claims the victim's address", Do: []spec.Action{claim("victim")}, Rows: []spec.Row{
					{From: "c1", To: spec.HostAt("victim", 8080), Servers: []string{"thief", "victim"}},
				}},
				{
					Name: "it is denied", Do: []spec.Action{Edit("web",
						func(s *corev1.Service) { s.Spec.ExternalIPs = nil })},
					Rows: []spec.Row{
						{From: "c1", To: spec.HostAt("victim", 8080), Servers: []string{"victim"}},
						{From: "c1", To: spec.ClusterIPOf("web", 8080), Servers: []string{"thief"}},
					},
				},
			},
		},
		{
			ID: "sec-namespace-binding", Needs: []spec.Feature{spec.ClusterIP},
			Given: []store.Object{
				Pod("c1", "n1"), Backend("a2", "n2"), Pod("intruder", "n1", TCP(8080)), Service("web"),
				Service("empty"),
			},
			Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
				// The slice comes into a namespace that has a Service of the same name, and one that has not.
				other := w.Namespace() + "-other"
				spec.MustDo(w.Apply(Namespace(other, nil)))
				same := Service("web", Selecting(""))
				same.Namespace = other
				spec.MustDo(w.Apply(same))
				for _, service := range []string{"web", "empty"} {
					for _, s := range SlicesOf(w, service, service, "", 8080, SliceEndpoint{Host: "intruder"}) {
						s.SetNamespace(other)
						spec.MustDo(w.Apply(s))
					}
				}
				return w.Expect(ctx, append(WantRefused(spec.Row{From: "c1", To: spec.ClusterIPOf("empty", 80)}),
					spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Times: 20, Servers: []string{"a2"}},
				)...)
			}}},
		},
		localnetGuard(), spoofedPodSource(), markCollision(), configuredBit(), configuredMetrics(),
		seldom(), atOnce("sync-at-once", false),
		atOnce("sync-at-once-from-file", true), configuredByFile(), hiddenDaemon(),
	}
}

// routeLocalnet makes the kernel route 127.0.0.0/8 between devices.
const routeLocalnet = "net.ipv4.conf.all.route_localnet"

// claim makes a Service with the addresses of a pod as its externalIPs.
func claim(pod string) spec.Action {
	return NewAction("claim the addresses of "+pod, func(w spec.World) error {
		var ips []string
		for _, a := range spec.Must(w.Host(pod)).Addrs() {
			ips = append(ips, a.String())
		}
		return w.Apply(Service("web", Port(8080, 8080), ExternalIPs(ips...)))
	})
}

// private is the port of the daemon that is for the node alone.
const private = 18127

func localnetGuard() spec.Scenario {
	return spec.Scenario{
		ID: "sec-localnet-guard", Needs: []spec.Feature{spec.NodePort},
		Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2"), Service("web", NodePort())},
		Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) (err error) {
			through := []spec.Row{
				{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a2"}},
				{From: "c1", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a2"}},
			}
			spec.TryDo(w.Expect(ctx, through...))
			if !slices.Contains(w.Lab().Stack().Families(), lab.V4) {
				w.Note("not tried: a packet for a loopback address, as ::1 is never routed")
				return nil
			}
			n1 := spec.Must(w.Host("n1"))
			spec.TryDo(offUnlessNeeded(w, n1))
			loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
			daemon := spec.Must(traffic.Serve(n1.NS, "daemon", []netip.Addr{loopback},
				traffic.Port{Proto: "tcp", Number: private}))
			defer func() { err = errors.Join(err, daemon.Close()) }()
			for i, from := range []string{"client", "c1"} {
				spec.TryDo(knock(ctx, w, from, uint16(40000+i), through...))
			}
			return nil
		}}},
	}
}

// offUnlessNeeded wants loopback addresses not to be routed where nothing on them is served.
func offUnlessNeeded(w spec.World, n1 *lab.Host) error {
	on := spec.Must(n1.Sysctl(routeLocalnet))
	if on != "0" && !w.Features()[spec.NodePortLocalhost] {
		return fmt.Errorf("%s is %s on n1, although NodePorts are not served on 127.0.0.1", routeLocalnet, on)
	}
	return nil
}

// knock sends a SYN for the daemon to n1, past the sender's own routing, and wants no answer to leave n1. What is
// probed after it has passed n1 later.
func knock(ctx context.Context, w spec.World, from string, port uint16, after ...spec.Row) error {
	h := spec.Must(w.Host(from))
	gateway := neighbour(h, w.Lab().Node("n1").Addr(lab.V4))
	source := netip.AddrPortFrom(h.Addr(lab.V4), port)
	to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), private)
	syn := spec.Must(traffic.Segment{Src: source, Dst: to, Seq: 1, SYN: true, Window: 1000}.Packet())
	seen := spec.Try(CapturePackets(w, func() error {
		spec.MustDo(traffic.SendFrame(h.NS, gateway.LinkIndex, gateway.HardwareAddr, syn))
		return w.Expect(ctx, after...)
	}, "n1"))
	arrived := false
	for _, c := range seen {
		arrived = arrived || c.Direction == observe.In && c.Src == source && c.Dst == to
		if c.Direction == observe.Out && c.Src == to && c.Dst == source {
			return fmt.Errorf("n1 answers %s from 127.0.0.1: %s", from, c.Packet)
		}
	}
	if !arrived {
		return spec.HarnessErrorf("the packet of %s for 127.0.0.1 has not come to n1", from)
	}
	return nil
}

// neighbour returns the next hop of a host on the route to an address.
func neighbour(h *lab.Host, to netip.Addr) netlink.Neigh {
	routes := spec.Must(h.Netlink().RouteGet(to.AsSlice()))
	if len(routes) == 0 {
		panic(spec.HarnessErrorf("%s: no route to %s", h.Name(), to))
	}
	next := to.AsSlice()
	if gw := routes[0].Gw; gw != nil {
		next = gw
	}
	known := spec.Must(netns.List(func() ([]netlink.Neigh, error) {
		return h.Netlink().NeighList(routes[0].LinkIndex, netlink.FAMILY_V4)
	}))
	for _, n := range known {
		if n.IP.Equal(next) && len(n.HardwareAddr) > 0 {
			return n
		}
	}
	panic(spec.HarnessErrorf("%s: the hardware address of %s is not known", h.Name(), to))
}
