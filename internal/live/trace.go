// SPDX-License-Identifier: Apache-2.0

package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"

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
	// Payload is how many bytes to send with the request, 0 for a short line.
	Payload int
}

// maxPayload is what a datagram can carry besides headers and the line of a request.
const maxPayload = 65000

// Traced is what became of a packet.
type Traced = trace.Traced

func (l *Lab) trace(ctx context.Context, call *control.Call) (any, error) {
	var args TraceArgs
	if err := call.Args(&args); err != nil {
		return nil, err
	}
	if args.Proto == "icmp" {
		args.To = anyPort(args.To)
	}
	return l.traceRequest(ctx, args, call.Stderr)
}

// traceRequest sends one request and follows its first packet. It warns if programs on the nodes have not converged.
func (l *Lab) traceRequest(ctx context.Context, args TraceArgs, warnings io.Writer) (*Traced, error) {
	p, to, err := l.probeOf(args.ProbeArgs)
	if err != nil {
		return nil, err
	}
	selected := p.Proto
	switch {
	case p.Proto == "icmp":
		p.To = netip.AddrPortFrom(p.To.Addr(), 0)
		if p.To.Addr().Is6() {
			p.Proto = "icmpv6"
		}
	case !slices.Contains([]string{"tcp", "udp", "sctp"}, p.Proto):
		return nil, fmt.Errorf("protocol %q: want tcp, udp, sctp or icmp", p.Proto)
	}
	if args.Payload < 0 || args.Payload > maxPayload {
		return nil, fmt.Errorf("payload of %d bytes: want 0 to %d", args.Payload, maxPayload)
	}
	p.Payload = args.Payload
	l.tracing.Lock()
	defer l.tracing.Unlock()
	if err := l.converged(ctx); err != nil {
		fmt.Fprintf(warnings, "the programs on the nodes have not converged: %v\n", err)
	}
	network := l.traceable(ctx)
	tracer, err := network.Start(ctx, lab.FamilyOf(p.To.Addr()), trace.Select{Proto: selected, Reply: args.Reply}, p)
	if err != nil {
		return nil, err
	}
	answer := request(ctx, p)
	if err := errors.Join(tracer.End(ctx), answer.Fault); err != nil {
		return nil, err
	}
	r, err := network.Traced(ctx, tracer, trace.Exchange{
		Probe: p, To: to.name, Answer: answer, Verdict: said(p, answer, network.Names), Reply: args.Reply,
	})
	if err == nil && answer.Outcome == traffic.Silence && len(r.Errors) > 0 { // the sender did not look for them
		r.Outcome, r.Verdict = traffic.Refused.String(), traffic.Refused.String()+": "+r.Walk.End.Text
	}
	return r, err
}

// converged waits until the programs on the nodes have converged, as long as a probe would.
func (l *Lab) converged(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, machine.Limit(probeLimit))
	defer cancel()
	return l.standing.Settle(ctx)
}

// said is verdict for all protocols.
func said(p traffic.Probe, a traffic.Answer, names map[netip.Addr]string) string {
	if a.Outcome == traffic.Reply && p.To.Port() == 0 {
		return "Reply by " + cmp.Or(names[p.To.Addr()], p.To.Addr().String())
	}
	return verdict(a, names)
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
		Receivers: func(to netip.AddrPort) []netip.Addr {
			return annotate.Receivers(l.standing.Cluster().Store().Snapshot(), to)
		},
	}
}
