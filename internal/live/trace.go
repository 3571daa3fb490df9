// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/viplab/viplab/internal/annotate"
	"github.com/viplab/viplab/internal/lab/ruleset"
	"github.com/viplab/viplab/internal/lab/trace"
	"github.com/viplab/viplab/internal/live/control"
	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/lab"
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
type Traced = trace.Traced

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
	network := l.traceable(ctx)
	tracer, err := network.Start(ctx, lab.FamilyOf(p.To.Addr()), trace.Select{Proto: p.Proto, Reply: args.Reply}, p.From)
	if err != nil {
		return nil, err
	}
	answer := request(ctx, p)
	if err := errors.Join(tracer.End(ctx), answer.Fault); err != nil {
		return nil, err
	}
	return network.Traced(ctx, tracer, trace.Exchange{
		Probe: p, To: to.name, Answer: answer, Verdict: verdict(answer, network.Names), Reply: args.Reply,
	})
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

// traceable returns the lab for traces.
func (l *Lab) traceable(ctx context.Context) trace.Lab {
	proxier, enforcer := l.standing.Programs()
	return trace.Lab{
		Proxier: proxier, Enforcer: enforcer,
		Lab: l.standing.Cluster().Lab(), Names: l.names(), Conntrack: l.standing.Conntrack,
		Annotate: func(node string, r *ruleset.Ruleset) error {
			book, err := l.book(ctx, node)
			if err == nil {
				book.All(r)
			}
			return err
		},
		Explain: func(t *trace.Traced) { annotate.Explain(l.standing.Cluster().Store().Snapshot(), t) },
	}
}
