// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/traffic"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// invalidNotLeaked has a Service with session affinity, too, which a proxier may translate in another way.
func invalidNotLeaked() spec.Scenario {
	return spec.Scenario{
		ID: "ct-invalid-not-leaked", Needs: []spec.Feature{spec.ClusterIP, spec.SessionAffinity, spec.DropInvalid},
		Given: append(NearAndFar(), Service("sticky", Selecting("far"), Affinity())),
		Steps: []spec.Step{{Check: behindServices("c1", map[string]string{"near": "b1", "far": "a2", "sticky": "a2"},
			func(stray) error { return nil })}},
	}
}

// invalidToNode is invalidNotLeaked with a process of n1 as the client. The node itself sees the pod's own address.
func invalidToNode() spec.Scenario {
	return spec.Scenario{
		ID: "ct-invalid-to-node", Needs: []spec.Feature{spec.ClusterIP, spec.DropInvalid},
		Given: NearAndFar(),
		Steps: []spec.Step{{Check: behindEachService("n1", func(stray) error { return nil })}},
	}
}

// liberal has a cluster of its own, where conntrack accepts any segment of a known connection.
func liberal() spec.Scenario {
	return spec.Scenario{
		ID: "ct-be-liberal", Cluster: &spec.ClusterConfig{Sysctls: liberalTracking, Nodes: []string{"n1", "n2"}},
		Needs: []spec.Feature{spec.ClusterIP, spec.KernelNAT},
		Given: NearAndFar(),
		Steps: []spec.Step{{Check: behindEachService("c1", wantDelivered)},
			{Name: "no rule against INVALID packets", Check: noRuleAgainstInvalid}},
	}
}

// stray is the fate of a segment outside of the window.
type stray struct {
	// got are the copies of it that a pod as client received in the Service's name, leaked those in the server's.
	got, leaked []CapturedPacket
	// after is the connection's answer afterwards.
	after traffic.Answer
}

// behindEachService is behindServices for the Services near and far.
func behindEachService(client string, judge func(stray) error) Check {
	return behindServices(client, map[string]string{"near": "b1", "far": "a2"}, judge)
}

// behindServices returns a check that sends a stray segment behind each Service to a client, from the Service's pod, in
// each family, and judges the outcome.
func behindServices(client string, pods map[string]string, judge func(stray) error) Check {
	return EachFamily(func(ctx context.Context, w spec.World, family lab.Family) error {
		var errs []error
		for service, pod := range pods {
			if err := spec.Catch(func() error {
				s, err := strayBehindService(ctx, w, family, client, service, pod)
				spec.TryDo(err)
				return errors.Join(s.judge(), judge(s))
			}); err != nil {
				errs = append(errs, fmt.Errorf("Service %s: %w", service, err))
			}
		}
		return errors.Join(errs...)
	})
}

// judge wants the client not to see the pod's own address, and the connection to live on.
func (s stray) judge() error {
	if s.after.Outcome != traffic.Reply {
		return fmt.Errorf("the connection is lost after a segment outside of its window: %s", s.after)
	}
	if len(s.leaked) > 0 {
		return fmt.Errorf("the client got a packet from the pod's own address: %s", s.leaked[0].Packet)
	}
	return nil
}

// strayBehindService connects the client to the Service, lets the pod send a segment far outside of the window on that
// connection, and uses the connection again.
func strayBehindService(ctx context.Context, w spec.World, family lab.Family,
	client, service, pod string) (out stray, err error) {
	var conn *traffic.Conn
	var answer traffic.Answer
	opening := spec.Try(CapturePackets(w, func() (err error) {
		conn, answer, err = w.Probe(ctx, client, spec.ClusterIPOf(service, 80), family, "tcp")
		return err
	}, pod))
	if conn == nil {
		return out, fmt.Errorf("%s does not reach it: %s", client, answer)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	last := lastSent(opening, answer)
	const outside = 1 << 30 // far beyond any window
	seen := spec.Try(CapturePackets(w, func() error {
		send(w, pod, traffic.Segment{
			Src: answer.Local, Dst: answer.Peer, Seq: last.Seq + outside, Ack: last.Ack, ACK: true, PSH: true,
			Window: 1000, Payload: []byte("stray"),
		})
		out.after = conn.Exchange(ctx)
		return nil
	}, client, pod))
	sent := false
	for _, c := range seen {
		sent = sent || c.Host == pod && c.Direction == observe.Out && string(c.Payload) == "stray"
		switch {
		case c.Host != client || c.Direction != observe.In || w.Lab().Node(client) != nil:
		case c.Src == answer.Local:
			out.leaked = append(out.leaked, c)
		case c.Src == conn.RemoteAddr() && string(c.Payload) == "stray":
			out.got = append(out.got, c)
		}
	}
	if !sent {
		return out, spec.HarnessErrorf("the stray segment was not sent")
	}
	return out, nil
}

// lastSent is the last segment that the pod sent on the connection.
func lastSent(caught []CapturedPacket, answer traffic.Answer) *observe.Packet {
	var last *observe.Packet
	for _, c := range caught {
		if c.Direction == observe.Out && c.Proto == "tcp" && c.Src == answer.Local && c.Dst == answer.Peer {
			last = c.Packet
		}
	}
	if last == nil {
		panic(spec.HarnessErrorf("the pod's capture holds no segment of the connection"))
	}
	return last
}

var liberalTracking = []netns.Setting{{Key: "net.netfilter.nf_conntrack_tcp_be_liberal", Value: "1"}}

// noRuleAgainstInvalid looks at the rules of iptables, where there is one otherwise.
func noRuleAgainstInvalid(ctx context.Context, w spec.World) error {
	if !w.Features()[spec.IPTables] {
		w.Note("not looked at: rules against INVALID packets, as the proxier has no chains of iptables")
		return nil
	}
	for _, family := range w.Lab().Stack().Families() {
		rules := spec.Must(w.Run(ctx, "n1", IPTables(w, family), "-w", "-S", "KUBE-FORWARD"))
		if strings.Contains(rules, "INVALID") {
			return fmt.Errorf("%s: connection tracking is liberal, and INVALID packets are dropped all the same:\n%s", family,
				rules)
		}
	}
	return nil
}
