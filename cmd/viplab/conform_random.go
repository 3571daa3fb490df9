// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/internal/suite/services"
	"github.com/viplab/viplab/suite/expect"
	"github.com/viplab/viplab/suite/spec"
)

// shrinkTime is how long a failing case is made smaller, on a machine of usual speed. A shorter --time limits it, too.
const shrinkTime = 3 * time.Minute

func (f *conformFlags) shrinkTime() time.Duration {
	limit := machine.Limit(shrinkTime)
	if f.time > 0 {
		limit = min(limit, f.time)
	}
	return limit
}

// addRandom adds the flags of generated cases.
func (f *conformFlags) addRandom(flags *pflag.FlagSet) {
	flags.IntVar(&f.random, "random", 0, "judge this many generated states and histories instead of the scenarios; the "+
		"first one that fails is made as small as possible and printed; with --write-expectations, all are judged")
	flags.Uint64Var(&f.seed, "seed", rand.Uint64N(1_000_000), "which cases --random generates")
	flags.Lookup("seed").DefValue = "another one each time"
	flags.DurationVar(&f.time, "time", 0, "begin no further cluster of --random after this time (default: no limit)")
}

// checkRandom checks the flags of generated cases.
func (f *conformFlags) checkRandom() error {
	switch {
	case f.random < 0 || f.random == 0 && f.proxiers.given("random"):
		return fmt.Errorf("--random: %d: want a positive number of cases", f.random)
	case f.random == 0 && (f.time != 0 || f.proxiers.given("seed")):
		return errors.New("--seed and --time require --random N")
	case f.time < 0:
		return fmt.Errorf("--time: %s: want a positive duration, such as 10m", f.time)
	case f.random > 0 && (f.selected.given() || f.shards.shard != "" || f.list || f.keep || f.keepFailed ||
		f.trySkipped):
		return errors.New("--random generates cases: it cannot be combined with --focus, --skip, --group, " +
			"--priority, --shard, --list, --keep, --keep-failed and --try-skipped")
	}
	return nil
}

// runRandom judges generated cases on each proxier, and those that failed in earlier runs with the same --out before.
func (f *conformFlags) runRandom(ctx context.Context, o engine.Options, stdout, stderr io.Writer) error {
	programs := o.Proxiers
	if _, err := f.enterSandbox(ctx, &o); err != nil {
		return err
	}
	unlock, err := lockOut(o.Out)
	if err != nil {
		return err
	}
	defer unlock()
	began := time.Now()
	var results, failures []spec.Result
	var coverage []report.Coverage
	note := ""
	for _, p := range o.Proxiers {
		r, out, err := f.randomOn(ctx, o, p, stdout, stderr)
		if err != nil {
			return err
		}
		results, failures, note = append(results, r), append(failures, out.Failures...), out.Note
		coverage = append(coverage, coverageOf(p.Name(), f.seed, out))
		if ctx.Err() != nil { // with a failure, or there would be an error
			break
		}
	}
	all := report.New(version(), kernelRelease(), note, results)
	all.Coverage = coverage
	if err := f.describe(&all, o, programs, began); err != nil {
		return err
	}
	page, err := pageOf("viplab: generated cases", nil, func(string) bool { return false })
	if err := errors.Join(err, all.WriteJSON(o.Out), all.WriteJUnit(o.Out),
		all.WritePageFile(filepath.Join(o.Out, "report.html"), page)); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s, kernel %s\nreport: %s, report.html and junit.xml\n", note, all.Kernel,
		filepath.Join(o.Out, "report.json"))
	if ctx.Err() == nil {
		if err := f.expect.write(programs, byLabel(failures), stdout); err != nil {
			return err
		}
	}
	return exitWith(all.ExitCode())
}

// randomOn judges generated cases on one proxier.
func (f *conformFlags) randomOn(ctx context.Context, o engine.Options, p spec.Proxier, stdout,
	stderr io.Writer) (spec.Result, *services.Outcome, error) {
	o.Proxiers = []spec.Proxier{p}
	r := spec.Result{Proxier: p.Name(), Verdict: spec.Pass, Scenario: spec.Scenario{
		ID: fmt.Sprintf("random-%d", f.seed), Group: "random", Priority: spec.P1, Source: "docs/random.md",
	}}
	first, err := services.Saved(o.Out, p.Name())
	if err != nil {
		return r, nil, err
	}
	save := func(failure *services.Failure) error {
		if failure.Tries == 0 && failure.Of == 0 {
			fmt.Fprintf(stderr, "%s: %s fails; it is made smaller, for %s at most\n", p.Name(), failure.Case.ID,
				f.shrinkTime())
		}
		return failure.Save(o.Out, p.Name())
	}
	out, err := services.Run(ctx, services.Options{
		Engine: o, Cases: f.random, Seed: f.seed, First: first, Time: f.time, ShrinkTime: f.shrinkTime(),
		Collect: f.expect.out != "", Keep: save,
		Listen: func(x services.Progress) {
			fmt.Fprintf(stderr, "%s: %d of %d cases, %d states, %.1f s\n", p.Name(), x.Cases, x.Of, x.States,
				x.Took.Seconds())
		},
	})
	switch {
	case err != nil && ctx.Err() == nil:
		return r, out, err
	case err != nil && out.Failure == nil && len(out.Failures) == 0: // what an interrupted run has found is reported
		return r, out, fmt.Errorf("%s: %s", p.Name(), noneFailed(out.Cases, f.random))
	}
	r.Took, r.Known = out.Took, out.Known
	r.Scenario.Why = fmt.Sprintf("%d generated cases, seed %d", out.Cases, f.seed)
	if len(out.Known) > 0 {
		r.Verdict = spec.Known
	}
	fmt.Fprintf(stdout, "%s: seed %d: %d cases, %d states, %d questions, %.1f s: %.0f states a minute\n", p.Name(),
		f.seed, out.Cases, out.Coverage.States, out.Rows, out.Took.Seconds(), float64(out.Coverage.States)/out.Took.Minutes())
	for _, k := range out.Known {
		fmt.Fprintln(stdout, "known:", k)
	}
	for _, b := range out.Broken {
		fmt.Fprintln(stdout, "broken:", b)
		r.Verdict, r.Reason = spec.Broken, b
	}
	if len(out.Failures) > 0 {
		r.Verdict, r.Reason = spec.Fail, fmt.Sprintf("%d of %d cases fail", len(out.Failures), out.Cases)
		r.Probed = out.Failures[0].Probed
		fmt.Fprintf(stdout, "%s: %s\n", p.Name(), r.Reason)
	}
	if out.Failure == nil {
		return r, out, nil
	}
	failed := out.Failure.Result
	r.Verdict, r.Reason, r.Probed = spec.Fail, out.Failure.Case.ID+": "+failed.Reason, failed.Probed
	return r, out, showFailure(out.Failure, o.Out, p, stdout)
}

// byLabel returns one result of generated cases as a whole for each proxier and label of a row that failed. The number
// of a row that shares its label with others of its case is a pattern, since the next case has other numbers.
func byLabel(failures []spec.Result) (out []spec.Result) {
	byKey := map[[2]string]*spec.Result{}
	for _, r := range failures {
		for _, row := range services.Failed(r) {
			label, _, numbered := strings.Cut(row.Row, "#")
			if row.Row = label; numbered {
				row.Row += "#*"
			}
			key := [2]string{r.Proxier, label}
			if byKey[key] == nil {
				byKey[key] = &spec.Result{
					Scenario: spec.Scenario{ID: expect.Generated}, Proxier: r.Proxier, Verdict: spec.Fail,
				}
			}
			byKey[key].Probed = append(byKey[key].Probed, row)
		}
	}
	order := func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }
	for _, key := range slices.SortedFunc(maps.Keys(byKey), order) {
		out = append(out, *byKey[key])
	}
	return out
}

// showFailure prints a failing case, which is saved already.
func showFailure(failure *services.Failure, out string, p spec.Proxier, stdout io.Writer) error {
	fmt.Fprintf(stdout, "%s: %s fails. What is left of it:\n", p.Name(), failure.Case.ID)
	if err := failure.Write(stdout); err != nil {
		return err
	}
	_, err := fmt.Fprintf(stdout, "saved: %s and .yaml beside it. The next run with the same --out begins with it.\n",
		failure.File(out, p.Name()))
	return err
}

func coverageOf(proxier string, seed uint64, out *services.Outcome) report.Coverage {
	c := out.Coverage
	return report.Coverage{
		Proxier: proxier, Seed: seed, Cases: out.Cases, States: c.States, Histories: c.Histories, Rows: out.Rows,
		Values: c.Values, Pairs: len(c.Pairs), Changes: c.Changes, Rules: c.Rules, Never: c.Never(),
	}
}
