// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/viplab/viplab/internal/suite/netpol"
	"github.com/viplab/viplab/internal/suite/netpol/misread"
	"github.com/viplab/viplab/internal/suite/prove"
	"github.com/viplab/viplab/internal/suite/prove/faults"
	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/suite/spec"
)

// proof shows that the cases can fail: with wrong readings in clusters that are built once, with faults in what
// enforcers write in a process for each.
type proof struct {
	*netpolRun
	benches map[string]chan *netpol.Bench // by enforcer, those that are free
}

// prove puts faults into the enforcers, and shows which cases notice.
func (r *netpolRun) prove(ctx context.Context) error {
	all, err := netpol.Faults(r.cases)
	if err != nil {
		return err
	}
	p := &proof{r, map[string]chan *netpol.Bench{}}
	o := prove.Options{Faults: all, Parallel: r.parallel, Listen: printTrials(r.progress), Run: p.run}
	o.Scenarios = scenariosOf(r.cases, all)
	var pools []netpol.Pool
	for _, e := range r.enforcers {
		pool, _, err := r.build(ctx, e)
		if err != nil {
			return err
		}
		if pool == nil {
			continue
		}
		pools = append(pools, pool)
		o.Proxiers = append(o.Proxiers, e.Name())
		free := make(chan *netpol.Bench, len(pool))
		for _, b := range pool {
			free <- b
		}
		p.benches[e.Name()] = free
	}
	result, err := prove.Do(ctx, o)
	for _, pool := range pools {
		err = errors.Join(err, pool.Close(context.WithoutCancel(ctx)))
	}
	if err != nil {
		return err
	}
	result.Version, result.Kernel = version(), kernelRelease()
	if err := errors.Join(result.WriteJSON(r.out), result.Write(r.stdout, isTerminal(r.stdout))); err != nil {
		return err
	}
	fmt.Fprintf(r.stdout, "report: %s\n", filepath.Join(r.out, "prove.json"))
	if code := result.ExitCode(); code != 0 {
		return exitCode(code)
	}
	return nil
}

// scenariosOf are the cases that faults name.
func scenariosOf(cases []netpol.Case, all []faults.Fault) []spec.Scenario {
	var out []spec.Scenario
	for _, c := range cases {
		if slices.ContainsFunc(all, func(f faults.Fault) bool { return slices.Contains(f.Scenarios, c.ID) }) {
			out = append(out, spec.Scenario{ID: c.ID, Priority: c.Priority})
		}
	}
	return out
}

// run carries a job out.
func (p *proof) run(ctx context.Context, job prove.Job) (out prove.Outcome, err error) {
	var reading *misread.Reading
	if job.Fault != "" {
		r, err := misread.Find(job.Fault)
		if err != nil {
			return p.child(ctx, job)
		}
		reading = &r
	}
	var b *netpol.Bench
	select {
	case b = <-p.benches[job.Proxier]:
	case <-ctx.Done():
		return out, ctx.Err()
	}
	defer func() { p.benches[job.Proxier] <- b }()
	var cases []netpol.Case
	for _, c := range p.cases {
		if slices.Contains(job.Scenarios, c.ID) {
			cases = append(cases, c)
		}
	}
	return b.Prove(ctx, cases, reading)
}

// child carries out a job with a fault in what the enforcer writes.
func (p *proof) child(ctx context.Context, job prove.Job) (out prove.Outcome, err error) {
	folder, err := os.MkdirTemp(p.out, "fault-")
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	args := []string{
		"netpol", "--enforcer", job.Proxier, "--fault", job.Fault, "--focus", exactly(job.Scenarios), "--parallel", "1", "--out",
		folder,
		"--ip", p.options.Stack.String(), "--pods", p.options.PodNetwork.String(), "--overlay", p.options.Overlay.String(),
	}
	if p.file != "" {
		args = append(args, "--cases", p.file)
	}
	cmd := self(ctx, args...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	_ = cmd.Run() // it fails, as it should; the report tells more
	read, err := report.Read(folder)
	if err != nil {
		return out, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(said.String()))
	}
	out = prove.Outcome{Results: read.Results, Touched: 1}
	for _, x := range read.Results {
		if refused := netpol.Refusal(x); refused != "" {
			out.Refused = append(out.Refused, refused)
		}
	}
	return out, nil
}
