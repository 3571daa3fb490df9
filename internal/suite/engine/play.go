// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// play runs the scenario's steps. An error is a failure of the proxier unless it is a spec.HarnessError.
func (w *world) play(ctx context.Context) error {
	for i, step := range w.cell.Scenario.Steps {
		if err := w.step(ctx, step); err != nil {
			if len(w.cell.Scenario.Steps) > 1 {
				err = fmt.Errorf("step %d%s: %w", i+1, dashed(step.Name), err)
			}
			return err
		}
	}
	return nil
}

func dashed(name string) string {
	if name == "" {
		return ""
	}
	return " (" + name + ")"
}

func (w *world) step(ctx context.Context, step spec.Step) error {
	w.record.stepName = step.Name
	for _, a := range step.Do {
		if err := guard(func() error { return a.Run(ctx, w) }); err != nil {
			return spec.HarnessErrorf("%s: %w", a.Name, err)
		}
	}
	if err := w.Expect(ctx, step.Rows...); err != nil {
		return err
	}
	if step.Check != nil {
		w.record.checked = true
		return guard(func() error { return step.Check(ctx, w) })
	}
	return nil
}

// atOnce is the number of probes of one step that are sent concurrently. Only the largest steps have more. Each probe
// has a socket that receives every echo of its namespace: a thousand of them would fill their buffers with the echoes
// of each other.
const atOnce = 64

// Expect waits until the cluster has converged, probes the rows concurrently, except those that take turns, and judges
// them together.
func (w *world) Expect(ctx context.Context, rows ...spec.Row) error {
	if err := w.Settle(ctx); err != nil {
		return err
	}
	if len(rows) == 0 {
		return nil
	}
	probes := w.expand(rows)
	each(turns(probes, w.proxiedBy), atOnce, func(turn []*probed) {
		for _, p := range turn {
			p.seen, p.fault = w.probeRow(ctx, p.row, p.family)
		}
	})
	return w.judge(ctx, probes)
}

// judge judges rows that have been probed, and traces those that have failed.
func (w *world) judge(ctx context.Context, probes []*probed) error {
	facts, err := w.facts()
	if err != nil {
		return err
	}
	err = w.record.judge(probes, facts, func(p *probed) []spec.Hop { return w.path(p, facts) })
	if failed := (failedRows{}); errors.As(err, &failed) {
		w.trace(ctx, failed)
	}
	return err
}

// expand returns one row per family for each row that applies to this cluster.
func (w *world) expand(rows []spec.Row) []*probed {
	var out []*probed
	labels := map[string]int{}
	for _, r := range rows {
		label := r.Label(w.record.stepName)
		if labels[label]++; labels[label] > 1 {
			label += fmt.Sprintf("#%d", labels[label])
		}
		w.record.name(label)
		if !r.Concerns(w.Features()) {
			w.record.omit(label, r.If, r.Unless)
			continue
		}
		if r.Flow.RequiresEntry() && !w.Features()[spec.KernelNAT] {
			w.record.omit(label+": its conntrack entry", spec.KernelNAT, "")
			r.Flow = spec.FlowWant{}
		}
		for _, f := range w.Lab().Stack().Families() {
			if r.Family == 0 || r.Family == f {
				out = append(out, &probed{row: r, label: label, family: f})
			}
		}
	}
	return out
}

// Observe implements spec.World.
func (w *world) Observe(ctx context.Context, row spec.Row) ([]spec.Observation, error) {
	var all []spec.Observation
	for _, p := range w.expand([]spec.Row{row}) {
		seen, err := w.probeRow(ctx, p.row, p.family)
		if err != nil {
			return nil, &spec.HarnessError{Err: err}
		}
		all = append(all, seen...)
	}
	return all, nil
}

// Probe implements spec.World.
func (w *world) Probe(ctx context.Context, from string, to spec.Target, family lab.Family,
	proto string) (*traffic.Conn, traffic.Answer, error) {
	row := spec.Row{From: from, To: to, Proto: proto}
	p, err := w.probeOf(row, family)
	if err != nil {
		return nil, traffic.Answer{}, err
	}
	o := spec.Observation{Family: family, To: p.To}
	conn, err := w.open(ctx, row, p, &o)
	if err != nil {
		return nil, o.Answer, &spec.HarnessError{Err: err}
	}
	return conn, o.Answer, nil
}
