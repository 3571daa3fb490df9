// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/viplab/viplab/internal/suite/netpol"
	"github.com/viplab/viplab/internal/suite/prove"
	"github.com/viplab/viplab/internal/suite/prove/faults"
	"github.com/viplab/viplab/suite/spec"
)

// selectProved selects the faults to prove, which are those of the flags that name a case of the run, and the cases
// that they name. The flags do not affect which cases a fault names.
func (r *netpolRun) selectProved(all []netpol.Case) error {
	known, err := netpol.Faults(all)
	if err != nil {
		return err
	}
	names := func(f faults.Fault, c netpol.Case) bool { return slices.Contains(f.Scenarios, c.ID) }
	for _, f := range known {
		named := slices.ContainsFunc(r.cases, func(c netpol.Case) bool { return names(f, c) })
		if named && (r.only == nil || r.only.MatchString(f.Name)) && slices.ContainsFunc(r.enforcers,
			func(e spec.Proxier) bool { return f.For(e.Name()) }) {
			r.proved = append(r.proved, f)
		}
	}
	if len(r.proved) == 0 {
		return fmt.Errorf("--prove: no fault that matches names a case that matches: nothing would be proved")
	}
	r.cases = slices.DeleteFunc(r.cases, func(c netpol.Case) bool {
		return !slices.ContainsFunc(r.proved, func(f faults.Fault) bool { return names(f, c) })
	})
	return nil
}

// prove puts faults into the enforcers and shows which cases catch them. As with "viplab prove", each trial is a
// separate process.
func (r *netpolRun) prove(ctx context.Context) error {
	f := r.flags
	o := prove.Options{Faults: r.proved, Only: r.only, Parallel: f.parallel, Listen: printTrials(r.progress)}
	o.Run = func(ctx context.Context, job prove.Job) (prove.Outcome, error) {
		return outcomeOf[prove.Outcome](ctx, f.arguments(job)...)
	}
	o.Scenarios = each(r.cases, func(c netpol.Case) spec.Scenario {
		return spec.Scenario{ID: c.ID, Priority: c.Priority}
	})
	o.Proxiers = each(r.enforcers, spec.Proxier.Name)
	return proveAndReport(ctx, o, f.out, r.stdout)
}

// arguments returns the arguments of the process that runs a job.
func (f *netpolFlags) arguments(job prove.Job) []string {
	args := append([]string{"netpol", "--outcome", "--parallel", "1", "--enforcer", job.Proxier, "--focus",
		exactly(job.Scenarios), "--out", f.out}, f.cluster.arguments()...)
	for flag, value := range map[string]string{"--fault": job.Fault, "--cases": f.cases, "--proxier": f.proxier} {
		if value != "" {
			args = append(args, flag, value)
		}
	}
	return args
}
