// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/internal/suite/prove"
	"github.com/viplab/viplab/internal/suite/services"
	"github.com/viplab/viplab/suite/spec"
)

// randomFlags are the flags of a search for faults by generated cases.
type randomFlags struct {
	cases    int
	seed     uint64
	time     time.Duration
	parallel int
}

func (f *randomFlags) add(flags *pflag.FlagSet) {
	flags.IntVar(&f.cases, "random", 0, "search for each fault by this many generated cases, at most, instead of running "+
		"the scenarios that it names")
	flags.Uint64Var(&f.seed, "seed", 1, "which cases --random generates")
	flags.DurationVar(&f.time, "time", 10*time.Minute, "end the search for one fault after this time")
	flags.IntVar(&f.parallel, "parallel", 2, "how many searches run at once")
}

// check checks the flags beside the others of the command.
func (f *randomFlags) check(others *proveFlags) error {
	given := others.proxiers.given
	switch {
	case f.cases < 1 && given("random") || f.time <= 0 || f.parallel < 1:
		return errors.New("--random, --time and --parallel: want positive values")
	case f.cases == 0 && (given("seed") || given("time") || given("parallel")):
		return errors.New("--seed, --time and --parallel require --random N")
	case f.cases > 0 && (others.focus != "" || others.everything):
		return errors.New("--random generates cases: it cannot be combined with --focus and --everything")
	}
	return nil
}

// search searches for the faults by generated cases, and reports how long it took to find each.
func (f *proveFlags) search(ctx context.Context, o prove.Options, programs []spec.Proxier, stdout,
	stderr io.Writer) error {
	if err := prepare(ctx, programs, stderr); err != nil {
		return err
	}
	o.Parallel = f.random.parallel
	run := func(ctx context.Context, fault, proxier string, cases int) (prove.Found, error) {
		if cases == 0 {
			cases = f.random.cases
		}
		p := programs[slices.Index(o.Proxiers, proxier)]
		return outcomeOf[prove.Found](ctx, slices.Concat([]string{"trial"}, f.proxiers.arguments(p), f.cluster.arguments(),
			[]string{"--fault", fault, "--random", fmt.Sprint(cases), "--seed", fmt.Sprint(f.random.seed), "--time",
				f.random.time.String()})...)
	}
	all, err := prove.DoSearch(ctx, o, run, func(s prove.Search) {
		if s.Verdict == prove.NotRun {
			return
		}
		fmt.Fprintf(stderr, "%s in %s %s: %d cases, %.1f s %s%s\n", cmp.Or(s.Fault, "no fault"), s.Proxier, s.Verdict,
			s.Cases, float64(s.TookMS)/1000, strings.Join(s.Kinds, ", "), s.Reason)
	})
	if err != nil {
		return err
	}
	all.Version, all.Kernel = version(), kernelRelease()
	if err := errors.Join(all.WriteJSON(f.out), all.Write(stdout)); err != nil {
		return err
	}
	judged, searches := all.Judged()
	fmt.Fprintf(stdout, "%sreport: %s\n", leftOut(judged, searches, "searches"), filepath.Join(f.out, "search.json"))
	return exitWith(all.ExitCode())
}

// search plays generated cases on the proxier until one fails.
func (f *conformFlags) search(ctx context.Context, o engine.Options) (found prove.Found, err error) {
	o.FailFast, o.Out = f.fault != "", ""
	seeding, err := f.enterSandbox(ctx, &o)
	if err != nil {
		return found, err
	}
	out, err := services.Run(ctx, services.Options{Engine: o, Cases: f.random, Seed: f.seed, Time: f.time, FindOnly: true})
	if err != nil {
		return found, err
	}
	if out.Failure == nil && len(out.Broken) > 0 {
		return found, fmt.Errorf("%d cases could not be judged, and none failed: %s", len(out.Broken), out.Broken[0])
	}
	found = prove.Found{Cases: out.Cases, States: out.Coverage.States, TookMS: out.Took.Milliseconds()}
	if out.Failure != nil {
		found.Case, found.Kinds = out.Failure.Case.ID, out.Failure.Kinds()
	}
	if seeding != nil {
		found.Touched = seeding.Touched()
	}
	return found, nil
}
