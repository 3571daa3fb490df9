// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/viplab/viplab/internal/lab/ruleset"
	"github.com/viplab/viplab/internal/lab/trace"
	"github.com/viplab/viplab/internal/live/control"
	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/traffic"
)

// Trace sends one request and follows its first packet through the rules and devices.
const Trace = "trace" // TraceArgs; the result is a Traced

// TraceArgs are the arguments of Trace.
type TraceArgs struct {
	ProbeArgs
	Reply bool // follow the packet that answers, too
}

// Traced is what became of a packet.
type Traced struct {
	From    string         `json:"from"`
	To      string         `json:"to"`
	Proto   string         `json:"proto"`
	Source  netip.AddrPort `json:"source"`
	Address netip.AddrPort `json:"address"`
	Outcome string         `json:"outcome"`
	// Verdict is the outcome with what is known of the server.
	Verdict string      `json:"verdict"`
	Walk    *trace.Walk `json:"walk"`
	Reply   *trace.Walk `json:"reply,omitempty"`
	// Relayed is the connection that a relay on a node has made to the server, nil if there was none.
	Relayed *trace.Walk `json:"relayed,omitempty"`
	// Flows are the entries of connection tracking that the packet has made or used.
	Flows []TracedFlow `json:"flows,omitempty"`
	// Losses are packets that the kernel has dropped meanwhile, if there was no answer.
	Losses []trace.Loss `json:"losses,omitempty"`
	// Names are those of the addresses in the walk.
	Names map[netip.Addr]string `json:"names,omitempty"`
}

// TracedFlow is an entry of a node's connection tracking.
type TracedFlow struct {
	Node string `json:"node"`
	Flow string `json:"flow"`
}

func (l *Lab) trace(ctx context.Context, call *control.Call) (any, error) {
	var args TraceArgs
	if err := call.Args(&args); err != nil {
		return nil, err
	}
	p, to, err := l.probeOf(args.ProbeArgs)
	if err != nil {
		return nil, err
	}
	if p.Proto != "tcp" && p.Proto != "udp" {
		return nil, fmt.Errorf("protocol %q: want tcp or udp", p.Proto)
	}
	l.tracing.Lock()
	defer l.tracing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, machine.Limit(probeLimit))
	defer cancel()
	if err := l.standing.Settle(ctx); err != nil {
		fmt.Fprintf(call.Stderr, "the programs on the nodes have not converged: %v\n", err)
	}
	tracer, err := l.tracer(ctx, p, args.Reply)
	if err != nil {
		return nil, err
	}
	answer := request(ctx, p)
	if err := errors.Join(tracer.End(ctx), answer.Fault); err != nil {
		return nil, err
	}
	names := l.names()
	r := &Traced{
		From: p.From.Name(), To: to.name, Proto: p.Proto, Source: answer.Source, Address: p.To,
		Outcome: answer.Outcome.String(), Verdict: verdict(answer, names),
	}
	if r.Walk, err = tracer.Walk(r.From, p.Proto, answer.Source, p.To); err != nil {
		return nil, err
	}
	if args.Reply {
		if r.Reply, err = tracer.Reply(r.From, p.Proto, answer.Source, p.To); err != nil {
			return nil, err
		}
	}
	if answer.Outcome == traffic.Reply {
		r.Relayed = tracer.Relayed(r.Walk, answer.Peer, answer.Local)
	} else {
		r.Losses = tracer.Losses()
	}
	r.name(names)
	r.Flows, err = l.tracedFlows(ctx, r)
	return r, err
}

// silenceLimit is how long a trace waits for an answer where the fences do not prove silence: what drops the packet may
// drop them, too.
const silenceLimit = 3 * time.Second

// request sends the request of a probe.
func request(ctx context.Context, p traffic.Probe) traffic.Answer {
	ctx, cancel := context.WithTimeout(ctx, machine.Limit(silenceLimit))
	defer cancel()
	answer := p.Do(ctx)
	if errors.Is(answer.Fault, context.DeadlineExceeded) {
		return traffic.Answer{Source: answer.Source, Outcome: traffic.Silence}
	}
	return answer
}

// tracer starts to record on all nodes, on the router and at the sender.
func (l *Lab) tracer(ctx context.Context, p traffic.Probe, reply bool) (*trace.Tracer, error) {
	network := l.standing.Cluster().Lab()
	var nodes []*netns.NS
	others := []*netns.NS{network.Router().NS}
	isNode := false
	for _, n := range network.Nodes() {
		nodes = append(nodes, n.NS)
		isNode = isNode || n.NS == p.From
	}
	if !isNode && p.From != network.Router().NS {
		others = append(others, p.From)
	}
	family := ipFamilies[lab.FamilyOf(p.To.Addr())]
	return trace.Start(ctx, nodes, others, family, trace.Select{Proto: p.Proto, Reply: reply},
		func(ns *netns.NS) (*ruleset.Ruleset, error) {
			r, err := ruleset.Read(ctx, ns)
			if err != nil {
				return nil, err
			}
			book, err := l.book(ctx, ns.Name())
			if err == nil {
				book.All(r)
			}
			return r, err
		})
}

// name keeps the names of the addresses that the packet had.
func (r *Traced) name(names map[netip.Addr]string) {
	r.Names = map[netip.Addr]string{}
	for _, t := range r.tuples() {
		for _, a := range []netip.Addr{t.Src.Addr(), t.Dst.Addr()} {
			if names[a] != "" {
				r.Names[a] = names[a]
			}
		}
	}
}

// tuples returns what the packets looked like.
func (r *Traced) tuples() []trace.Tuple {
	all := []trace.Tuple{{Src: r.Source, Dst: r.Address}}
	for _, w := range []*trace.Walk{r.Walk, r.Relayed, r.Reply} {
		if w == nil {
			continue
		}
		for _, s := range w.Steps {
			if s.After != nil {
				all = append(all, *s.After)
			}
		}
	}
	return all
}

// tracedFlows returns the entries of connection tracking of all nodes whose first packet looked like the traced one.
func (l *Lab) tracedFlows(ctx context.Context, r *Traced) ([]TracedFlow, error) {
	known := map[observe.Tuple]bool{}
	for _, t := range r.tuples() {
		known[observe.Tuple{Src: t.Src, Dst: t.Dst}] = true
	}
	var all []TracedFlow
	for _, n := range l.standing.Cluster().Lab().Nodes() {
		flows, err := l.standing.Conntrack(n.Name()).Flows(ctx, func(f observe.Flow) bool {
			return f.Proto == r.Proto && known[f.Orig]
		})
		if err != nil {
			return nil, err
		}
		for _, f := range flows {
			all = append(all, TracedFlow{n.Name(), f.String()})
		}
	}
	return all, nil
}
