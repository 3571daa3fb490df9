// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/traffic"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// conntrack returns the scenarios of connection tracking: what a node remembers of a translated connection.
func conntrack() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "ct-entry-plain-dnat", Needs: []spec.Feature{spec.ClusterIP, spec.SourceAddress, spec.KernelNAT},
			Given: []store.Object{Pod("a1", "n1"), Backend("b1", "n1"), Backend("a2", "n2"), Service("web")},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "a1", To: spec.ClusterIPOf("web", 80), Times: 2, Servers: []string{"b1", "a2"},
					Flow: spec.TranslatedOn("n1")},
			}}},
		},
		{
			ID: "ct-entry-masqueraded", Needs: []spec.Feature{spec.NodePort, spec.KernelNAT},
			Given: []store.Object{Backend("a1", "n1"), Backend("a2", "n2"), Service("web", NodePort())},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n1", "web", 80), Times: 2, Servers: []string{"a1", "a2"},
					Flow: spec.MasqueradedOn("n1")},
			}}},
		},
		states(),
		invalidNotLeaked(), invalidToNode(),
		liberal(),
		udpEndpointRemoved(),
		udpZeroToOne(),
		udpUnreadyThenReady(),
		udpTargetPortChange(),
		udpUntouchedFlows(),
		udpNoEndpoints(),
		udpServiceDeleted(),
		udpFrontendRemoved(),
		udpFrontendOnlyChange(),
		tcpNotFlushed(),
		cleanupCollateral(),
		nothingOnRejectDrop(),
		// It reads what is left of entries that have just been touched. The pod serves nothing: the scenario
		// does, because an echo server closes a connection that its client has half closed.
		{
			ID: "ct-timeouts", Needs: []spec.Feature{spec.ClusterIP, spec.ConntrackTimeouts},
			Given: []store.Object{Pod("c1", "n1"), Pod("s2", "n2", App("web")), Service("web")},
			Steps: []spec.Step{{Check: EachFamily(halfClose(24*time.Hour, time.Hour))}},
		},
		configuredTimeouts(), configuredStreams(), configuredLiberal(),
	}
}

// states has a cluster of its own, because it counts packets by their conntrack state.
func states() spec.Scenario {
	return spec.Scenario{
		ID: "ct-states", Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
		Needs: []spec.Feature{spec.ClusterIP, spec.KernelNAT},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a2", "n2"), Service("web"), Service("closed", Selecting("web"), UDPPort(53, 5999)),
		},
		Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
			// After conntrack (priority -200) and before the nat table (-100).
			count := Count(ctx, w, "n1",
				Counter{Name: "new", Hook: "prerouting", Priority: -150, Match: "tcp dport 80 ct state new"},
				Counter{Name: "established", Hook: "prerouting", Priority: -150, Match: "meta l4proto tcp ct state established"},
				Counter{Name: "related", Hook: "prerouting", Priority: -150, Match: "ct state related"},
				Counter{Name: "invalid", Hook: "prerouting", Priority: -150, Match: "ct state invalid"},
			)
			spec.TryDo(w.Expect(ctx,
				spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a2"}},
				spec.Row{From: "c1", To: spec.ClusterIPOf("closed", 53), Proto: "udp", Want: spec.Refused},
			))
			for _, family := range w.Lab().Stack().Families() {
				strayReset(w, family)
			}
			// Whatever is answered after the stray packet has passed the node after it.
			spec.TryDo(w.Expect(ctx, spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a2"}}))
			counted := count()
			var errs []error
			for _, state := range []string{"new", "established", "related", "invalid"} {
				if n := len(w.Lab().Stack().Families()); counted[state] < n {
					errs = append(errs, fmt.Errorf("n1 saw %d packets in state %s, not at least %d", counted[state], state, n))
				}
			}
			return errors.Join(errs...)
		}}},
	}
}

// strayReset sends from c1 to a2 a RST that belongs to no connection: conntrack has no state for that but INVALID.
func strayReset(w spec.World, family lab.Family) {
	from := spec.Must(w.Resolve(spec.HostAt("c1", 50000), family, "tcp"))
	to := spec.Must(w.Resolve(spec.HostAt("a2", 8080), family, "tcp"))
	send(w, "c1", traffic.Segment{Src: from, Dst: to, Seq: 1, RST: true})
}

func send(w spec.World, host string, s traffic.Segment) {
	h := spec.Must(w.Host(host))
	spec.MustDo(traffic.SendRaw(h.NS, spec.Must(s.Packet())))
}

// halfClose returns a check that connects c1 to a server that never closes, and closes c1's half. The node must
// remember the connection for these times.
func halfClose(established, closeWait time.Duration) func(context.Context, spec.World, lab.Family) error {
	return func(ctx context.Context, w spec.World, family lab.Family) error {
		vip := spec.Must(w.Resolve(spec.ClusterIPOf("web", 80), family, "tcp"))
		client, server := connect(ctx, w, family, vip)
		defer server.Close()
		defer client.Close()
		orig := observe.Tuple{Src: client.LocalAddr().(*net.TCPAddr).AddrPort(), Dst: vip}
		spec.TryDo(remembered(ctx, w, orig, "ESTABLISHED", established))
		spec.MustDo(client.(*net.TCPConn).CloseWrite())
		return remembered(ctx, w, orig, "CLOSE_WAIT", closeWait)
	}
}

// connect makes a connection from c1 to the virtual address, and takes it at s2.
func connect(ctx context.Context, w spec.World, family lab.Family, vip netip.AddrPort) (client, server net.Conn) {
	pod := spec.Must(w.Host("s2"))
	from := spec.Must(w.Host("c1"))
	listener := spec.Must(pod.NS.Listen(ctx, "tcp", netip.AddrPortFrom(pod.Addr(family), 8080).String()))
	defer listener.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, _ := listener.Accept() // nil if the listener is closed before
		accepted <- c
	}()
	ctx, cancel := WithPatience(ctx)
	defer cancel()
	client, err := from.NS.Dial(ctx, "tcp", netip.AddrPort{}, vip)
	if err != nil {
		spec.TryDo(fmt.Errorf("c1 does not reach the Service: %w", err))
	}
	return client, <-accepted
}

// remembered waits for n1's entry to be in a state, and wants it to stay for as long as a fresh one shall.
func remembered(ctx context.Context, w spec.World, orig observe.Tuple, state string, want time.Duration) error {
	var found observe.Flow
	spec.TryDo(Eventually(ctx, func(context.Context) (err error) {
		found, _, err = w.Flow("n1", "tcp", orig)
		if err == nil && found.TCPState != state {
			err = fmt.Errorf("n1 tracks no connection %s in state %s", orig, state)
		}
		return err
	}))
	if left := found.Timeout; left > want || left < want-time.Minute {
		return fmt.Errorf("n1 remembers a connection in state %s for %s, not for %s", state, left, want)
	}
	return nil
}
