// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/proxiers/model"
)

// TestTraffic also probes a relay of n1 directly: it must not accept traffic that was not redirected to it.
func TestTraffic(t *testing.T) {
	in := &instance{}
	proxiertest.Traffic(t, in.proxier(), func(t *testing.T, w *proxiertest.World, f lab.Family) []proxiertest.Row {
		return []proxiertest.Row{{From: w.Client().NS, To: in.anyRelay(t, w, f), Outcome: traffic.Refused}}
	})
}

// anyRelay is the address by which n1's relays could be reached, if they took what was not redirected to them.
func (in *instance) anyRelay(t *testing.T, w *proxiertest.World, f lab.Family) netip.AddrPort {
	t.Helper()
	at := relayAddrs[f]
	route := &netlink.Route{Dst: netlink.NewIPNet(at.AsSlice()), Gw: w.Node("n1").Addr(f).AsSlice()}
	if err := w.Client().Netlink().RouteReplace(route); err != nil {
		t.Fatal(err)
	}
	web := model.PortID{Name: "web", Port: "tcp", Protocol: corev1.ProtocolTCP}
	i := slices.IndexFunc(in.families, func(m *family) bool { return m.ns == w.Node("n1").NS && m.ip == f })
	return in.families[i].portals.open[web].cluster.addr()
}

func TestUDPFollowsEndpoints(t *testing.T) { proxiertest.UDPFollowsEndpoints(t, New()) }

// TestRenamedPort: connections outlive the name of the port, as they do in the kernel.
func TestRenamedPort(t *testing.T) {
	in := &instance{}
	w := proxiertest.NewWorld(t, in.proxier(), lab.Bridge)
	called := func(name string) *corev1.Service {
		s := proxiertest.Service("web", 10, proxiertest.AsNodePort)
		s.Spec.Ports[0].Name, s.Spec.Ports[1].Name = name+"-tcp", name+"-udp"
		return s
	}
	w.Apply(t, called("first"), "b1")
	var conns []*traffic.Conn
	for _, proto := range []string{"tcp", "udp"} {
		probe := traffic.Probe{From: w.Pod("a1").NS, To: proxiertest.VIP(lab.V4, 10), Proto: proto}
		conn, first := probe.Open(t.Context())
		if conn == nil {
			t.Fatalf("%s: %v %v", proto, first.Outcome, first.Fault)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	for _, name := range []string{"second", "third", "first"} {
		w.Apply(t, called(name), "b1")
		for _, conn := range conns {
			if a := conn.Exchange(t.Context()); a.Outcome != traffic.Reply {
				t.Errorf("the ports are called %s: %v %s (%v)", name, a.Outcome, a.Detail, a.Fault)
			}
		}
	}
	for _, f := range in.families {
		if p := f.portals; len(p.open) != 2 || len(p.named) != 2 {
			t.Errorf("%s: %d portals and %d names, want 2", f.ns.Name(), len(p.open), len(p.named))
		}
	}
}

// TestFlowAfterItsSession: policy Local leads to another relay than policy Cluster. A UDP flow that its session kept at
// the former relay goes to the present one when the session ends, even if the former relay is still open.
func TestFlowAfterItsSession(t *testing.T) {
	in := &instance{}
	w := proxiertest.NewWorld(t, in.proxier(), lab.Bridge)
	local := proxiertest.Service("web", 10, func(s *corev1.ServiceSpec) {
		s.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
	})
	for _, f := range w.Stack().Families() {
		t.Run("its endpoint leaves "+f.String(), func(t *testing.T) {
			w.Apply(t, proxiertest.Service("web", 10), "b1", "a2")
			flows := flowsTo(t, w, f)
			w.Apply(t, local, "b1", "a2")
			w.Apply(t, local, "b1")
			for server, flow := range flows {
				answeredBy(t, flow, "b1", server)
			}
		})
		t.Run("it is idle "+f.String(), func(t *testing.T) {
			w.Apply(t, proxiertest.Service("web", 10), "b1", "a2")
			flows := flowsTo(t, w, f)
			w.Apply(t, local, "b1", "a2")
			sessions := in.sessions(t, w, f)
			for server, flow := range flows {
				answeredBy(t, flow, server, server)
			}
			sessions.mu.Lock()
			for _, s := range sessions.sessions {
				s.used.Store(0)
				must(t, s.conn.SetReadDeadline(time.Unix(1, 0)))
			}
			sessions.mu.Unlock()
			waitFor(t, func() bool { return sessions.relay.clients.Load() == 0 })
			for server, flow := range flows {
				answeredBy(t, flow, "b1", server)
			}
		})
	}
}

// flowsTo opens a UDP flow from a1 to each of two endpoints, by the name of the endpoint.
func flowsTo(t *testing.T, w *proxiertest.World, f lab.Family) map[string]*traffic.Conn {
	t.Helper()
	flows := map[string]*traffic.Conn{}
	for range 2 {
		conn, a := traffic.Probe{From: w.Pod("a1").NS, To: proxiertest.VIP(f, 10), Proto: "udp"}.Open(t.Context())
		if conn == nil {
			t.Fatalf("%v %s (%v)", a.Outcome, a.Detail, a.Fault)
		}
		t.Cleanup(func() { _ = conn.Close() })
		flows[a.Greeting.Server] = conn
	}
	if len(flows) != 2 {
		t.Fatalf("both flows went to one endpoint")
	}
	return flows
}

func answeredBy(t *testing.T, flow *traffic.Conn, server, before string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if a := flow.Exchange(ctx); a.Greeting.Server != server {
		t.Errorf("the flow was with %s; now %v %s %s (%v), want one from %s", before, a.Outcome, a.Greeting.Server,
			a.Detail, a.Fault, server)
	}
}

// sessions returns the UDP sessions of the relay for policy Cluster on n1.
func (in *instance) sessions(t *testing.T, w *proxiertest.World, f lab.Family) *udpListener {
	t.Helper()
	web := model.PortID{Name: "web", Port: "udp", Protocol: corev1.ProtocolUDP}
	i := slices.IndexFunc(in.families, func(m *family) bool { return m.ns == w.Node("n1").NS && m.ip == f })
	return in.families[i].portals.open[web].cluster.listener.(*udpListener)
}

// TestRestartServes: after the proxy is killed and restarted, new connections work and UDP clients continue, because
// the relays have the same ports as before.
func TestRestartServes(t *testing.T) {
	w := proxiertest.NewWorld(t, New(), lab.Bridge)
	w.Apply(t, proxiertest.Service("web", 10, proxiertest.AsNodePort), "b1", "a2")
	from, to := w.Pod("a1").NS, proxiertest.VIP(lab.V4, 10)
	udp := traffic.Probe{From: from, Source: netip.MustParseAddrPort("0.0.0.0:40000"), To: to, Proto: "udp"}
	tcp := traffic.Probe{From: from, To: to, Proto: "tcp"}
	conn, first := tcp.Open(t.Context())
	if conn == nil {
		t.Fatalf("before: %v %v", first.Outcome, first.Fault)
	}
	defer conn.Close()
	for range 3 {
		if a := udp.Do(t.Context()); a.Outcome != traffic.Reply {
			t.Fatalf("udp: %v %s (%v)", a.Outcome, a.Detail, a.Fault)
		}
		kill(w.Instances[0])
		if a := tcp.Do(t.Context()); a.Outcome != traffic.Refused {
			t.Errorf("while the proxy is gone: %v %s (%v)", a.Outcome, a.Detail, a.Fault)
		}
		w.Restart(t, 0)
		if a := tcp.Do(t.Context()); a.Outcome != traffic.Reply {
			t.Fatalf("after a restart: %v %s (%v)", a.Outcome, a.Detail, a.Fault)
		}
	}
	if a := conn.Exchange(t.Context()); a.Outcome != traffic.Reset {
		t.Errorf("a connection of before: %v %s (%v)", a.Outcome, a.Detail, a.Fault)
	}
}
