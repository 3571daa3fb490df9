// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/traffic"
)

var (
	vipTCP   = frontend{netip.MustParseAddrPort("10.96.0.1:80"), unix.IPPROTO_TCP}
	vipUDP   = frontend{netip.MustParseAddrPort("10.96.0.1:80"), unix.IPPROTO_UDP}
	backendA = netip.MustParseAddrPort("192.0.2.10:8080")
	backendB = netip.MustParseAddrPort("192.0.2.11:8080")
)

// drainNode is a node that has both backends itself, and a proxier for a Service of both protocols.
func drainNode(t *testing.T) *instance {
	t.Helper()
	node := proxiertest.UpNode(t, lab.V4)
	in := start(t, node)
	t.Cleanup(func() { in.Stop(context.Background()) })
	lo, err := node.Host.Netlink().LinkByName("lo")
	for _, b := range []netip.AddrPort{backendA, backendB} {
		err = errors.Join(err, node.Host.Netlink().AddrAdd(lo, &netlink.Addr{IPNet: netlink.NewIPNet(b.Addr().AsSlice())}))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []netip.AddrPort{backendA, backendB} {
		s, err := traffic.Serve(node.Host.NS, b.Addr().String(), []netip.Addr{b.Addr()},
			traffic.Port{Proto: "tcp", Number: 8080}, traffic.Port{Proto: "udp", Number: 8080})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
	}
	return in
}

// servedBy returns a state in which the Service has the given backends.
func servedBy(backends ...netip.AddrPort) *store.Snapshot {
	svc, slice := proxiertest.Simple(0, 0, lab.V4)
	svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "udp", Port: 80, Protocol: corev1.ProtocolUDP})
	slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
		Name: new("udp"), Port: new(int32(8080)), Protocol: new(corev1.ProtocolUDP),
	})
	for _, b := range backends {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{b.Addr().String()}})
	}
	return &store.Snapshot{Services: []*corev1.Service{svc}, EndpointSlices: []*discoveryv1.EndpointSlice{slice}}
}

// weights returns the weights of a virtual server's backends in the kernel.
func weights(t *testing.T, in *instance, fr frontend) string {
	t.Helper()
	f := in.families[0]
	f.mu.Lock()
	defer f.mu.Unlock()
	found, err := f.kernel.servers.backends(fr)
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, b := range []netip.AddrPort{backendA, backendB} {
		if d := found[b]; d != nil {
			text += fmt.Sprintf("%s=%d ", b.Addr(), d.Weight)
		}
	}
	return text
}

func expectWeights(t *testing.T, in *instance, fr frontend, want string) {
	t.Helper()
	if got := weights(t, in, fr); got != want {
		t.Errorf("%s has the backends %s, want %s", fr, got, want)
	}
}

// openTo makes connections to the Service until one is with the backend.
func openTo(t *testing.T, in *instance, fr frontend, proto string, backend netip.AddrPort) *traffic.Conn {
	t.Helper()
	tries := 2 // the scheduler is round robin
	if proto == "udp" {
		tries = 64 // rules pick a backend at random
	}
	for range tries {
		c, answer := traffic.Probe{From: in.node.Host.NS, To: fr.at, Proto: proto}.Open(t.Context())
		if c == nil {
			t.Fatalf("%s: %s", fr, answer)
		}
		t.Cleanup(func() { c.Close() })
		if answer.Server == backend.Addr().String() {
			return c
		}
	}
	t.Fatalf("%d connections, and none to %s", tries, backend)
	return nil
}

// TestConnectionsEndFirst: a removed backend gets no new connections, keeps its existing ones, and is deleted soon
// after the last one ends. A backend that is added again while it drains keeps its connections.
func TestConnectionsEndFirst(t *testing.T) {
	in := drainNode(t)
	proxiertest.Apply(t, in, servedBy(backendA, backendB))
	long := openTo(t, in, vipTCP, "tcp", backendA)
	proxiertest.Apply(t, in, servedBy(backendB))
	expectWeights(t, in, vipTCP, "192.0.2.10=0 192.0.2.11=1 ")
	for range 4 {
		if a := (traffic.Probe{From: in.node.Host.NS, To: vipTCP.at,
			Proto: "tcp"}).Do(t.Context()); a.Server != backendB.Addr().String() {
			t.Errorf("a new connection: %s", a)
		}
	}
	if a := long.Exchange(t.Context()); a.Outcome != traffic.Reply {
		t.Errorf("the connection to the backend that goes: %s", a)
	}
	proxiertest.Apply(t, in, servedBy(backendA, backendB))
	expectWeights(t, in, vipTCP, "192.0.2.10=1 192.0.2.11=1 ")
	if a := long.Exchange(t.Context()); a.Outcome != traffic.Reply {
		t.Errorf("after the backend has come back: %s", a)
	}
	proxiertest.Apply(t, in, servedBy(backendB))
	if err := long.Close(); err != nil {
		t.Fatal(err)
	}
	// IPVS forgets a connection that was reset after 10 s (ip_vs_proto_tcp.c).
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := observe.Await(ctx, nil, func(context.Context) error {
		if got := weights(t, in, vipTCP); got != "192.0.2.11=1 " {
			return fmt.Errorf("the backends are %s", got)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestUDPMovesAtOnce: a flow continues with another backend and loses no datagram, although it never pauses.
func TestUDPMovesAtOnce(t *testing.T) {
	in := drainNode(t)
	proxiertest.Apply(t, in, servedBy(backendA, backendB))
	expectWeights(t, in, vipUDP, "")
	flow := openTo(t, in, vipUDP, "udp", backendA)
	proxiertest.Apply(t, in, servedBy(backendB))
	expectWeights(t, in, vipUDP, "")
	if a := flow.Exchange(t.Context()); a.Server != backendB.Addr().String() {
		t.Errorf("the flow: %s", a)
	}
}

// TestUDPStaysWhileServed: a flow stays with a terminating backend as long as it serves, and new flows do not reach it.
func TestUDPStaysWhileServed(t *testing.T) {
	in := drainNode(t)
	proxiertest.Apply(t, in, servedBy(backendA, backendB))
	flow := openTo(t, in, vipUDP, "udp", backendA)
	for _, step := range []struct {
		serves bool
		server netip.AddrPort
	}{
		{true, backendA},
		{false, backendB},
	} {
		state := servedBy(backendA, backendB)
		state.EndpointSlices[0].Endpoints[0].Conditions = discoveryv1.EndpointConditions{
			Ready: new(false), Serving: &step.serves, Terminating: new(true),
		}
		proxiertest.Apply(t, in, state)
		for range 4 {
			if a := (traffic.Probe{From: in.node.Host.NS, To: vipUDP.at,
				Proto: "udp"}).Do(t.Context()); a.Server != backendB.Addr().String() {
				t.Errorf("serves %t: a new flow: %s", step.serves, a)
			}
		}
		if a := flow.Exchange(t.Context()); a.Server != step.server.Addr().String() {
			t.Errorf("serves %t: the flow: %s", step.serves, a)
		}
	}
}

// TestConnectionsOutlastAffinity: a connection stays with its backend when a Service gets session affinity, so that
// rules serve new ones instead of IPVS, and when it loses it.
func TestConnectionsOutlastAffinity(t *testing.T) {
	in := drainNode(t)
	plain, sticky := servedBy(backendA, backendB), servedBy(backendA, backendB)
	sticky.Services[0].Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	proxiertest.Apply(t, in, plain)
	byIPVS := openTo(t, in, vipTCP, "tcp", backendA)
	proxiertest.Apply(t, in, sticky)
	if got := weights(t, in, vipTCP); !strings.HasPrefix(got, "192.0.2.10=0 ") {
		t.Errorf("%s has the backends %s, and the first has a connection", vipTCP, got)
	}
	if a := byIPVS.Exchange(t.Context()); a.Outcome != traffic.Reply {
		t.Errorf("a connection by IPVS, when rules serve new ones: %s", a)
	}
	byRules, answer := traffic.Probe{From: in.node.Host.NS, To: vipTCP.at, Proto: "tcp"}.Open(t.Context())
	if byRules == nil {
		t.Fatal(answer)
	}
	defer byRules.Close()
	proxiertest.Apply(t, in, plain)
	for name, c := range map[string]*traffic.Conn{"IPVS": byIPVS, "rules": byRules} {
		if a := c.Exchange(t.Context()); a.Outcome != traffic.Reply {
			t.Errorf("a connection by %s: %s", name, a)
		}
	}
}

// TestTableKeepsItsSize: the kernel does not resize its table of connections (settings says why it must not). By
// default it does so for the 65th connection of a namespace.
func TestTableKeepsItsSize(t *testing.T) {
	in := drainNode(t)
	if _, err := in.node.Host.Sysctl("net.ipv4.vs.conn_lfactor"); errors.Is(err, fs.ErrNotExist) {
		t.Skip("the table of this kernel has a fixed size")
	}
	proxiertest.Apply(t, in, servedBy(backendA))
	buckets := func() (line string) {
		err := in.node.Host.NS.Do(func() error {
			text, err := os.ReadFile("/proc/thread-self/net/ip_vs_status")
			for l := range strings.Lines(string(text)) {
				if strings.HasPrefix(l, "Conn buckets:") {
					line = strings.TrimSpace(l)
				}
			}
			return err
		})
		if err != nil || line == "" {
			t.Fatalf("ip_vs_status: no buckets of connections: %v", err)
		}
		return line
	}
	before := buckets()
	for range 80 {
		openTo(t, in, vipTCP, "tcp", backendA)
	}
	if after := buckets(); after != before {
		t.Errorf("80 connections changed the table of connections from %q to %q", before, after)
	}
}

// TestIdleBackendGoesAtOnce: a removed backend without connections is deleted at once.
func TestIdleBackendGoesAtOnce(t *testing.T) {
	in := drainNode(t)
	proxiertest.Apply(t, in, servedBy(backendA, backendB))
	proxiertest.Apply(t, in, servedBy(backendB))
	expectWeights(t, in, vipTCP, "192.0.2.11=1 ")
}
