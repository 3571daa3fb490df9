// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"github.com/viplab/viplab/internal/annotate"
	"github.com/viplab/viplab/internal/lab/ruleset"
	"github.com/viplab/viplab/internal/lab/trace"
	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// Limits of traces, in rows. A run in which everything fails traces the first failures.
const (
	tracesOfScenario = 8
	tracesOfProxier  = 40
)

// Limits of one trace.
const (
	traceLimit    = 30 * time.Second       // detects hangs
	tracePatience = 250 * time.Millisecond // after the fences: the row has waited long enough
	traceSilence  = time.Second            // where the fences do not prove silence
	traceTries    = 20                     // of a row with many probes, until one fails
)

// traceBudget is how many more rows of a proxier's run are traced. It is nil in runs that keep no evidence.
type traceBudget struct {
	mu   sync.Mutex
	left int
}

func newTraceBudget(out string) *traceBudget {
	if out == "" {
		return nil
	}
	return &traceBudget{left: tracesOfProxier}
}

// take returns how many of n rows may be traced.
func (b *traceBudget) take(n int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n = min(n, b.left)
	b.left -= n
	return n
}

// traceKind is what one Tracer can record.
type traceKind struct {
	family lab.Family
	proto  string
}

// trace repeats a probe of each row that has failed, and traces it. The state is still that of the failure. Rows that
// fail as known are not traced. It never changes the verdict.
func (w *world) trace(ctx context.Context, f failedRows) {
	if w.cell.traces == nil {
		return
	}
	var rows []*probed
	for _, p := range f.probes {
		if len(p.wrong) > 0 && !p.known {
			rows = append(rows, p)
		}
	}
	taken := w.cell.traces.take(min(len(rows), tracesOfScenario-len(w.record.traces)))
	kinds := map[traceKind][]*rowTrace{}
	for i, p := range rows {
		p.trace = &rowTrace{of: p}
		if i >= taken {
			continue
		}
		k := traceKind{p.family, p.row.Protocol()}
		kinds[k] = append(kinds[k], p.trace)
		w.record.keepTrace(p)
	}
	ctx, cancel := context.WithTimeout(ctx, machine.Limit(traceLimit))
	defer cancel()
	w.env.tracing.Lock()
	defer w.env.tracing.Unlock()
	network := w.traceable(ctx, f.facts)
	for k, traces := range kinds {
		if err := w.traceTogether(ctx, network, k, traces, f.facts); err != nil {
			for _, t := range traces {
				t.fault = errors.Join(t.fault, err)
			}
		}
	}
	w.record.nameTraces(w.cell.folder())
}

// keepTrace gives the trace of a row its number.
func (r *record) keepTrace(p *probed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.traces = append(r.traces, p.trace)
	p.trace.number = len(r.traces)
}

// nameTraces names the files of the traces in the entries of their rows in the report, except those that have failed.
func (r *record) nameTraces(folder string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.traces {
		if t.traced != nil {
			r.probed[t.of.number].Trace = filepath.Join(folder, t.file(".json"))
		}
	}
}

// folder returns the folder of a cell's evidence, relative to that of the report.
func (c *Cell) folder() string { return filepath.Join(c.Scenario.ID, c.Proxier.Name()) }

// traceTogether traces rows of one family and protocol while one Tracer records.
func (w *world) traceTogether(ctx context.Context, network trace.Lab, k traceKind, traces []*rowTrace,
	facts spec.Facts) error {
	var requests []traffic.Probe
	for _, t := range traces {
		if t.probe, t.fault = w.probeOf(t.of.row, t.of.family); t.fault != nil {
			continue
		}
		t.probe.Patience = machine.Limit(tracePatience)
		requests = append(requests, t.probe)
	}
	if len(requests) == 0 {
		return nil
	}
	tracer, err := network.Start(ctx, k.family, trace.Select{Proto: k.proto, Reply: k.proto == "tcp"}, requests...)
	if err != nil {
		return err
	}
	each(traces, len(traces), func(t *rowTrace) {
		if t.fault == nil {
			t.fault = w.repeat(ctx, t, facts)
		}
	})
	err = tracer.End(ctx)
	w.record.captures = append(w.record.captures, tracer.Captures()...)
	for _, t := range traces {
		if t.fault != nil {
			continue
		}
		t.traced, t.fault = network.Traced(ctx, tracer, trace.Exchange{
			Probe: t.probe, To: t.of.row.To.String(), Answer: t.seen.Answer, Verdict: t.got, Reply: k.proto == "tcp",
		})
	}
	return err
}

// repeat sends a probe of a row once more. It sends probes until one fails if only some of the row's have failed.
func (w *world) repeat(ctx context.Context, t *rowTrace, facts spec.Facts) error {
	tries := min(t.of.row.Count(), traceTries)
	if !t.of.failsAlone(facts) {
		tries = 1 // no probe can fail if all that the row wants of one has held
	}
	for range tries {
		t.seen = spec.Observation{Family: t.of.family, To: t.probe.To}
		var err error
		if t.seen.Answer, err = w.again(ctx, t); err != nil {
			return err
		}
		if err := w.complete(t.of.row, &t.seen); err != nil {
			return err
		}
		seen := []spec.Observation{t.seen}
		t.got = t.of.alone().Got(seen, facts)
		if t.wrong = t.of.alone().Judge(seen, facts); len(t.wrong) > 0 {
			return nil
		}
	}
	return nil
}

// again sends the probe of a row, or sends on the socket that the row keeps.
func (w *world) again(ctx context.Context, t *rowTrace) (traffic.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, machine.Limit(traceSilence))
	defer cancel()
	send := t.probe.Do
	if t.of.row.Protocol() == "sctp" {
		send = func(ctx context.Context) traffic.Answer { return associate(ctx, t.of.row, t.probe) }
	}
	if t.of.row.Conn != "" {
		w.prober.mu.Lock()
		k := w.kept[fmt.Sprintf("%s/%s", t.of.row.Conn, t.of.family)]
		w.prober.mu.Unlock()
		switch {
		case k == nil:
		case t.of.row.Protocol() == "tcp":
			return traffic.Answer{}, errors.New("it sends on an open connection, of which no packet is traced")
		default:
			k.conn.SetPatience(t.probe.Patience, t.probe.IfAccepted)
			send = k.conn.Exchange
		}
	}
	answer := send(ctx)
	if errors.Is(answer.Fault, context.DeadlineExceeded) {
		answer = traffic.Answer{Source: answer.Source, Outcome: traffic.Silence}
	}
	return answer, answer.Fault
}

// traceable returns the cluster for traces.
func (w *world) traceable(ctx context.Context, facts spec.Facts) trace.Lab {
	state := w.Store().Snapshot()
	proxier, enforcer := w.env.programs()
	return trace.Lab{
		Proxier: proxier, Enforcer: enforcer, Namespace: w.namespace,
		Lab: w.Lab(), Names: facts.Names, Rules: map[string]*ruleset.Ruleset{},
		Conntrack: func(node string) *observe.Conntrack { return w.env.conntrack[node] },
		Annotate: func(node string, r *ruleset.Ruleset) error {
			remarks, err := w.env.remarks(ctx, node)
			if err == nil {
				annotate.New(state, facts.Names, remarks).All(r)
			}
			return err
		},
		Explain:   func(t *trace.Traced) { annotate.Explain(state, t) },
		Receivers: func(to netip.AddrPort) []netip.Addr { return annotate.Receivers(state, to) },
	}
}
