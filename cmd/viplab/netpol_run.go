// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/viplab/viplab/internal/suite/e2e"
	"github.com/viplab/viplab/internal/suite/expected"
	"github.com/viplab/viplab/internal/suite/netpol"
	"github.com/viplab/viplab/suite/spec"
)

// judge runs all cases on an enforcer. Cases that have no verdict when the context ends are skipped as not run.
func (r *netpolRun) judge(ctx context.Context, e spec.Proxier) ([]spec.Result, error) {
	p := &netpolProgress{netpolRun: r, enforcer: e, began: time.Now(), results: make([]*spec.Result, len(r.cases)),
		texts: make([]bytes.Buffer, len(r.cases))}
	err := p.run(ctx)
	if ctx.Err() != nil {
		p.leave()
		r.judged, r.left, err = r.judged+p.ended, r.left+p.left, nil // what is interrupted is not broken
	}
	if p.ended > 0 {
		p.summarize()
	}
	return p.all(), err
}

// run runs the cases. It skips an enforcer that cannot run here or does not support the pod network.
func (p *netpolProgress) run(ctx context.Context) error {
	r, e := p.netpolRun, p.enforcer
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err := e.Usable(ctx)
	if err == nil && r.options.Proxier != nil {
		err = r.options.Proxier.Usable(ctx)
	}
	var pool netpol.Pool
	if err == nil {
		pool, err = netpol.NewPool(ctx, min(r.flags.parallel, len(r.cases)), e, r.options)
	}
	if cannot := (*spec.UnusableError)(nil); errors.As(err, &cannot) && ctx.Err() == nil {
		fmt.Fprintf(r.stdout, "%s: skipped: %v\n", e.Name(), cannot)
		for i := range p.results {
			p.results[i] = &spec.Result{Verdict: spec.Skip, Reason: cannot.Error()}
		}
		return nil
	}
	if err != nil {
		return err
	}
	p.built = time.Since(p.began)
	p.began = time.Now()
	err = pool.Each(len(r.cases), func(i int, b *netpol.Bench) error {
		verdicts, err := b.Judge(ctx, r.cases[i])
		if ctx.Err() != nil {
			return ctx.Err()
		}
		result, notTraced := p.result(ctx, b, r.cases[i], verdicts, err)
		if first := p.add(i, result, verdicts, err); first && r.generated() {
			return p.shrink(ctx, b, r.cases[i])
		}
		return notTraced
	})
	p.took = time.Since(p.began)
	if errors.Is(err, errCounterexample) {
		err = nil
	}
	return errors.Join(err, pool.Close(ctx))
}

// leave skips the cases that an interrupt has left, and prints what is known of the cases behind them.
func (p *netpolProgress) leave() {
	for i := range p.results {
		if p.results[i] == nil {
			p.results[i] = &spec.Result{Verdict: spec.Skip, Cause: spec.NotRun, Reason: e2e.ErrInterrupted.Error()}
			p.left++
		}
	}
	p.print()
}

// netpolProgress is the progress of a run of the cases on one enforcer. Cases end in any order and are shown in the
// order of the file.
type netpolProgress struct {
	*netpolRun
	enforcer spec.Proxier
	began    time.Time
	built    time.Duration // how long building the clusters took
	took     time.Duration // how long judging took

	mu      sync.Mutex
	results []*spec.Result // by case, nil until it has ended
	texts   []bytes.Buffer // the output of each case
	ended   int
	left    int // cases, by an interrupt
	shown   int // the first case that has not been printed
	failed  bool
	tables  []time.Duration
	traced  atomic.Int64 // cases
}

// tracedCases is how many failed cases of an enforcer are traced. A run in which everything fails traces the first.
const tracedCases = 10

// result returns the result of a case on a bench. Wrong cells of the first written cases that fail are traced. Of
// generated cases only the one that is left after shrinking is.
func (p *netpolProgress) result(ctx context.Context, b *netpol.Bench, c netpol.Case, verdicts []netpol.Verdict,
	failed error) (*spec.Result, error) {
	result := netpol.Result(verdicts, failed, p.expected[p.enforcer.Name()].Of(c.ID))
	if result.Verdict != spec.Fail || len(verdicts) == 0 || p.flags.outcome || p.generated() ||
		p.traced.Add(1) > tracedCases {
		return &result, nil
	}
	return &result, p.trace(ctx, b, c, &result, verdicts)
}

// trace traces wrong cells of a case into the folder of the case and the enforcer.
func (p *netpolProgress) trace(ctx context.Context, b *netpol.Bench, c netpol.Case, result *spec.Result,
	verdicts []netpol.Verdict) error {
	return b.Trace(ctx, result, verdicts, p.flags.out, filepath.Join(c.ID, p.enforcer.Name()))
}

// add adds the result of a case, and reports whether it is the first that has failed.
func (p *netpolProgress) add(i int, result *spec.Result, verdicts []netpol.Verdict, err error) (first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.cases[i]
	p.results[i] = result
	if refused := (*netpol.ApplyError)(nil); errors.As(err, &refused) {
		p.refused = append(p.refused, err.Error())
	}
	if err != nil {
		fmt.Fprintf(&p.texts[i], "%s: %s: %v\n", c.ID, result.Verdict, err)
	}
	for _, reason := range result.Known {
		fmt.Fprintf(&p.texts[i], "%s: known: %s\n", c.ID, reason)
	}
	if strings.HasPrefix(result.Reason, expected.Surprise) {
		fmt.Fprintf(&p.texts[i], "%s: %s: %s\n", c.ID, result.Verdict, result.Reason)
	}
	for _, v := range verdicts {
		p.tables = append(p.tables, v.Took)
		result.Took += v.Took
		if !p.generated() || result.Verdict == spec.Broken {
			p.show(&p.texts[i], c, &v, result.Verdict == spec.Known)
		}
	}
	p.listTraces(&p.texts[i], result)
	p.print()
	every := 25
	if p.generated() {
		every = 250
	}
	if p.ended++; p.ended%every == 0 {
		fmt.Fprintf(p.progress, "%s: %d of %d cases, %.1f s\n", p.enforcer.Name(), p.ended, len(p.results),
			time.Since(p.began).Seconds())
	}
	first = result.Verdict == spec.Fail && !p.failed
	p.failed = p.failed || first
	return first
}

// print prints the output of the cases that have ended, up to the first one that has not.
func (p *netpolProgress) print() {
	for ; p.shown < len(p.results) && p.results[p.shown] != nil; p.shown++ {
		_, _ = p.texts[p.shown].WriteTo(p.stdout) // SIGPIPE ends the program if the pipe is closed
	}
}

// show prints the table if --tables is set, and its wrong cells unless they are known.
func (r *netpolRun) show(w io.Writer, c netpol.Case, v *netpol.Verdict, known bool) {
	title := fmt.Sprintf("%s %s %s: %s (%s)", c.ID, c.Priority, v.Title(), v.Verdict, c.Given)
	if r.flags.tables {
		fmt.Fprintf(w, "%s\n", title)
		_ = v.WriteMarks(w)
	}
	if v.Verdict != spec.Pass && !known {
		fmt.Fprintf(w, "%s: %d cells are wrong\n", title, len(v.Wrong))
		_ = netpol.Describe(w, c)
		_ = v.WriteDifferences(w)
	}
}

// listTraces names the files with the traces of wrong cells.
func (r *netpolRun) listTraces(w io.Writer, result *spec.Result) {
	for _, file := range result.Files {
		fmt.Fprintf(w, "trace of a wrong cell: %s\n", filepath.Join(r.flags.out, file))
	}
}

// errCounterexample ends a run of generated cases early.
var errCounterexample = errors.New("a counterexample was found")

// shrink minimizes a failing generated case, shows it and writes it to a file.
func (p *netpolProgress) shrink(ctx context.Context, b *netpol.Bench, c netpol.Case) error {
	fmt.Fprintf(p.progress, "%s: %s fails, and is being made smaller\n", p.enforcer.Name(), c.ID)
	small, err := netpol.Shrink(c, p.options.Stack, func(c netpol.Case) (bool, error) {
		verdict, _ := netpol.SumUp(b.Judge(ctx, c))
		return verdict == spec.Fail, ctx.Err()
	})
	if err != nil && ctx.Err() == nil { // what an interrupted run has found is reported
		return err
	}
	small.Given = "what is left of " + c.ID
	path := filepath.Join(p.flags.out, fmt.Sprintf("%s-%s.json", p.enforcer.Name(), small.ID))
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(netpol.WriteCases(file, small), file.Close()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	p.showSmall(ctx, b, small)
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.stdout, "again: %s\n", p.flags.again(p.enforcer.Name(), path))
	return errCounterexample
}

// again returns the command that judges the cases of a file on an enforcer in a cluster of the same kind.
func (f *netpolFlags) again(enforcer, cases string) string {
	args := []string{"netpol", "--enforcer", enforcer}
	if f.exec != "" {
		args = []string{"netpol", "--exec", f.exec, "--name", enforcer, "--patience", f.patience.String()}
	}
	if f.proxier != "" {
		args = append(args, "--proxier", f.proxier)
	}
	if f.fault != "" {
		args = append(args, "--fault", f.fault)
	}
	args = append(args, f.cluster.arguments()...)
	return invocation(append(args, "--cases", cases)...) + f.expect.quoted()
}

// showSmall judges what is left of a case once more, and shows it. After an interrupt it describes the case.
func (p *netpolProgress) showSmall(ctx context.Context, b *netpol.Bench, c netpol.Case) {
	verdicts, err := b.Judge(ctx, c)
	result := netpol.Result(verdicts, err, nil)
	notTraced := p.trace(ctx, b, c, &result, verdicts)
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil {
		fmt.Fprintf(p.stdout, "%s fails; the run was interrupted before it was as small as possible\n", c.ID)
		_ = netpol.Describe(p.stdout, c)
		return
	}
	if err := errors.Join(err, notTraced); err != nil {
		fmt.Fprintf(p.stdout, "%s: %v\n", c.ID, err)
	}
	for _, v := range verdicts {
		p.show(p.stdout, c, &v, false)
	}
	p.listTraces(p.stdout, &result)
}

// all returns the results of the cases that have ended. Generated cases are one result together.
func (p *netpolProgress) all() []spec.Result {
	var out []spec.Result
	all := spec.Result{Verdict: spec.Pass, Took: p.took}
	for i, r := range p.results {
		if r == nil {
			continue
		}
		c := p.cases[i]
		if rank(r.Verdict) > rank(all.Verdict) {
			all.Verdict, all.Cause, all.Reason = r.Verdict, r.Cause, fmt.Sprintf("%s: %s", c.ID, r.Reason)
		}
		r.Scenario = spec.Scenario{ID: c.ID, Group: "networkpolicy", Why: cmp.Or(c.Why, c.Given), Priority: c.Priority,
			Source: c.Source}
		r.Proxier = p.enforcer.Name()
		out = append(out, *r)
	}
	if !p.generated() {
		return out
	}
	if all.Cause == spec.NotRun {
		all.Reason = noneFailed(p.ended, len(p.cases))
	}
	all.Proxier = p.enforcer.Name()
	all.Scenario = spec.Scenario{ID: fmt.Sprintf("random-%d", p.flags.seed), Group: "networkpolicy",
		Why: fmt.Sprintf("%d generated cases, seed %d", len(p.cases), p.flags.seed), Priority: spec.P1}
	return []spec.Result{all}
}

// rank orders verdicts. The verdict with the highest rank is that of the run.
func rank(v spec.Verdict) int {
	return slices.Index([]spec.Verdict{spec.Pass, spec.Skip, spec.Broken, spec.Fail}, v)
}

func (p *netpolProgress) summarize() {
	count := map[spec.Verdict]int{}
	for _, x := range p.results {
		if x != nil {
			count[x.Verdict]++
		}
	}
	took, left := p.took.Seconds(), ""
	if p.left > 0 {
		left = fmt.Sprintf("%d not run, ", p.left)
	}
	if p.generated() {
		verdict := string(p.all()[0].Verdict)
		if p.left > 0 && verdict == string(spec.Skip) {
			verdict = "none failed"
		}
		fmt.Fprintf(p.stdout, "%s: %d generated cases, seed %d: %s, %d broken, %s%.1f s\n", p.enforcer.Name(), p.ended,
			p.flags.seed, verdict, count[spec.Broken], left, took)
		return
	}
	known := ""
	if n := count[spec.Known]; n > 0 {
		known = fmt.Sprintf("%d known, ", n)
	}
	fmt.Fprintf(p.stdout, "%s: %d passed, %s%d failed, %d broken, %s%.1f s after %.1f s of building", p.enforcer.Name(),
		count[spec.Pass], known, count[spec.Fail], count[spec.Broken], left, took, p.built.Seconds())
	if slices.Sort(p.tables); len(p.tables) > 0 {
		fmt.Fprintf(p.stdout, "; a table of %d probes takes %d ms (median of %d)", netpol.Cells,
			p.tables[len(p.tables)/2].Milliseconds(), len(p.tables))
	}
	fmt.Fprintln(p.stdout)
}
