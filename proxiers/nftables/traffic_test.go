package nftables

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/kube"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/proxiers/internal/proxiertest"
	"github.com/viplab/viplab/suite/spec"
)

// The conformance suite judges what this proxier does with packets. What it does while its rules are replaced is tested
// here.

// twoNodes is a lab with a server in each of its pods: a1 and b1 on n1, a2 on n2. A proxier on n1 can be started for it.
func twoNodes(t *testing.T) (*lab.Lab, spec.Node) {
	t.Helper()
	l, err := lab.Build(t.Context(), lab.Topology{
		Nodes: []lab.NodeSpec{
			{Name: "n1", Pods: []lab.PodSpec{{Name: "a1"}, {Name: "b1"}}}, {Name: "n2", Pods: []lab.PodSpec{{Name: "a2"}}},
		},
		Stack: lab.Dual,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	for _, p := range l.Pods() {
		s, err := traffic.Serve(p.NS, p.Name(), nil, traffic.Port{Proto: "tcp", Number: 8080}, traffic.Port{Proto: "udp", Number: 8080})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
	}
	node := proxiertest.Node(t, lab.V4, lab.V6)
	node.Host, node.ClusterCIDRs, node.PodCIDRs = l.Node("n1"), l.ClusterCIDRs(), l.Node("n1").PodCIDRs()
	return l, node
}

// services are the first n of the plain clusters', with the lab's pods behind the very first one.
func services(l *lab.Lab, n int) *kube.Snapshot {
	s := proxiertest.Cluster(n, 3)
	for i, f := range []lab.Family{lab.V4, lab.V6} {
		for j, p := range []string{"a1", "b1", "a2"} {
			s.EndpointSlices[i].Endpoints[j].Addresses[0] = l.Pod(p).Addr(f).String()
		}
	}
	return s
}

func firstService(f lab.Family) netip.AddrPort {
	return netip.MustParseAddrPort(map[lab.Family]string{lab.V4: "10.96.0.1:80", lab.V6: "[fd00:10:96::1]:80"}[f])
}

// TestRestartIsTransparent: connections live on, and clients stay with their endpoints, while one proxier takes over from
// another one.
func TestRestartIsTransparent(t *testing.T) {
	l, node := twoNodes(t)
	state := services(l, 1)
	state.Services[0].Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	apply(t, start(t, node), state)
	for _, f := range node.Families {
		probe := traffic.Probe{From: l.Pod("a1").NS, To: firstService(f), Proto: "tcp"}
		conn, first := probe.Open(t.Context())
		if conn == nil {
			t.Fatalf("before: %v %v", first.Outcome, first.Fault)
		}
		defer conn.Close()
		for range 5 {
			apply(t, start(t, node), state)
			if a := conn.Exchange(t.Context()); a.Outcome != traffic.Reply {
				t.Fatalf("the connection after a restart: %v %s", a.Outcome, a.Detail)
			}
			if a := probe.Do(t.Context()); a.Outcome != traffic.Reply || a.Greeting.Server != first.Greeting.Server {
				t.Fatalf("a new connection after a restart: %v from %q, want one from %q", a.Outcome, a.Greeting.Server, first.Greeting.Server)
			}
		}
	}
}

// TestNoGap: every connection that is made while the table is rewritten, as a whole or in part, is served.
func TestNoGap(t *testing.T) {
	l, node := twoNodes(t)
	few, many := services(l, 50), services(l, 60)
	apply(t, start(t, node), few)

	ctx, done := context.WithCancel(t.Context())
	failed, made := make(chan error, 1), 0
	go func() {
		for ctx.Err() == nil {
			for _, f := range node.Families {
				a := traffic.Probe{From: l.Pod("a1").NS, To: firstService(f), Proto: "tcp"}.Do(t.Context())
				if a.Outcome != traffic.Reply {
					failed <- fmt.Errorf("connection %d to %s: %v %s (%v)", made, firstService(f), a.Outcome, a.Detail, a.Fault)
					return
				}
				made++
			}
		}
		failed <- nil
	}()
	for range 10 {
		in := start(t, node)
		apply(t, in, few)
		apply(t, in, many)
	}
	done()
	if err := <-failed; err != nil {
		t.Error(err)
	}
	if made < 20 {
		t.Errorf("%d connections were made: that proves little", made)
	}
}
