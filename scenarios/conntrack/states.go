package conntrack

import (
	"context"
	"errors"
	"fmt"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/kube"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/lab/watch"
	. "github.com/viplab/viplab/scenarios/given"
	"github.com/viplab/viplab/suite/spec"
)

// states has a cluster of its own, because it counts packets by their conntrack state.
var states = spec.Scenario{
	ID: "ct-states", Group: "conntrack", Priority: spec.P0, Own: &spec.Own{},
	Source: "the states NEW, ESTABLISHED, RELATED and INVALID, on which the rules of KUBE-FORWARD rest",
	Why:    "The node sees a handshake as NEW and then ESTABLISHED, an ICMP error about a Service as RELATED, which the client gets in terms of the ClusterIP, and a stray packet as INVALID.",
	Needs:  []spec.Feature{spec.ClusterIP, spec.KernelNAT},
	Given: []kube.Object{
		Pod("c1", "n1"), Backend("a2", "n2"), Service("web"), Service("closed", Selecting("web"), UDPPort(53, 5999)),
	},
	Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
		// After conntrack (priority -200) and before the nat table (-100).
		count, err := Count(ctx, w, "n1",
			Counter{Name: "new", Hook: "prerouting", Priority: -150, Match: "tcp dport 80 ct state new"},
			Counter{Name: "established", Hook: "prerouting", Priority: -150, Match: "meta l4proto tcp ct state established"},
			Counter{Name: "related", Hook: "prerouting", Priority: -150, Match: "ct state related"},
			Counter{Name: "invalid", Hook: "prerouting", Priority: -150, Match: "ct state invalid"},
		)
		if err != nil {
			return err
		}
		if err := w.Expect(ctx,
			spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), By: []string{"a2"}},
			spec.Row{From: "c1", To: spec.ClusterIPOf("closed", 53), Proto: "udp", Want: spec.Refused},
		); err != nil {
			return err
		}
		for _, family := range w.Lab().Stack().Families() {
			if err := strayReset(w, family); err != nil {
				return &spec.Fault{Err: err}
			}
		}
		// Whatever is answered after the stray packet has passed the node after it.
		if err := w.Expect(ctx, spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), By: []string{"a2"}}); err != nil {
			return err
		}
		counted, err := count()
		if err != nil {
			return err
		}
		var errs []error
		for _, state := range []string{"new", "established", "related", "invalid"} {
			if n := len(w.Lab().Stack().Families()); counted[state] < n {
				errs = append(errs, fmt.Errorf("n1 saw %d packets in state %s, not at least %d", counted[state], state, n))
			}
		}
		return errors.Join(errs...)
	}}},
}

// strayReset sends from c1 to a2 a RST that belongs to no connection: conntrack has no state for that but INVALID.
func strayReset(w spec.World, family lab.Family) error {
	from, err := w.Resolve(spec.HostAt("c1", 50000), family, "tcp")
	if err != nil {
		return err
	}
	to, err := w.Resolve(spec.HostAt("a2", 8080), family, "tcp")
	if err != nil {
		return err
	}
	return send(w, "c1", traffic.Segment{Src: from, Dst: to, Seq: 1, RST: true})
}

func send(w spec.World, host string, s traffic.Segment) error {
	h, err := w.Host(host)
	if err != nil {
		return err
	}
	packet, err := s.Packet()
	if err != nil {
		return err
	}
	return traffic.SendRaw(h.NS, packet)
}

var invalidNotLeaked = spec.Scenario{
	ID: "ct-invalid-not-leaked", Group: "conntrack", Priority: spec.P0,
	Source: "e2e conntrack.go 'not be vulnerable to the invalid conntrack state bug'; kubernetes#74839",
	Why:    "A segment that conntrack calls INVALID does not reach the client with the pod's own address, which would make the client reset the connection.",
	Needs:  []spec.Feature{spec.ClusterIP, spec.DropInvalid},
	Given: []kube.Object{
		Pod("c1", "n1"), Backend("b1", "n1", App("near")), Backend("a2", "n2", App("far")), Service("near"), Service("far"),
	},
	Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
		var errs []error
		for _, family := range w.Lab().Stack().Families() {
			for service, pod := range map[string]string{"near": "b1", "far": "a2"} {
				if err := strayBehindService(ctx, w, family, service, pod); err != nil {
					errs = append(errs, fmt.Errorf("%s, Service %s: %w", family, service, err))
				}
			}
		}
		return errors.Join(errs...)
	}}},
}

// strayBehindService connects c1 to the Service, lets the pod send a segment far outside of the window on that
// connection, and wants the client not to see it and the connection to live on.
func strayBehindService(ctx context.Context, w spec.World, family lab.Family, service, pod string) (err error) {
	var conn *traffic.Conn
	var answer traffic.Answer
	opening, err := Catch(w, func() (err error) {
		conn, answer, err = w.Probe(ctx, "c1", spec.ClusterIPOf(service, 80), family, "tcp")
		return err
	}, pod)
	if err != nil {
		return err
	}
	if conn == nil {
		return fmt.Errorf("c1 does not reach it: %s", answer)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	last, err := lastSent(opening, answer)
	if err != nil {
		return err
	}
	seen, err := Catch(w, func() error {
		const outside = 1 << 30 // far beyond any window
		stray := traffic.Segment{
			Src: answer.Local, Dst: answer.Peer, Seq: last.Seq + outside, Ack: last.Ack, ACK: true, PSH: true,
			Window: 1000, Payload: []byte("stray"),
		}
		if err := send(w, pod, stray); err != nil {
			return &spec.Fault{Err: err}
		}
		if again := conn.Exchange(ctx); again.Outcome != traffic.Reply {
			return fmt.Errorf("the connection is lost after a segment outside of its window: %s", again)
		}
		return nil
	}, "c1", pod)
	if err != nil {
		return err
	}
	sent := false
	for _, c := range seen {
		sent = sent || c.Host == pod && c.Direction == watch.Out && string(c.Payload) == "stray"
		if c.Host == "c1" && c.Direction == watch.In && c.Src == answer.Local {
			return fmt.Errorf("the client got a packet from the pod's own address: %s", c.Packet)
		}
	}
	if !sent {
		return spec.Faultf("the stray segment was not sent")
	}
	return nil
}

// lastSent is the last segment that the pod sent on the connection.
func lastSent(caught []Caught, answer traffic.Answer) (*watch.Packet, error) {
	var last *watch.Packet
	for _, c := range caught {
		if c.Direction == watch.Out && c.Proto == "tcp" && c.Src == answer.Local && c.Dst == answer.Peer {
			last = c.Packet
		}
	}
	if last == nil {
		return nil, spec.Faultf("the pod's capture holds no segment of the connection")
	}
	return last, nil
}
