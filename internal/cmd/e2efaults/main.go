// SPDX-License-Identifier: Apache-2.0

// Command e2efaults puts each fault of "viplab prove" into a proxier or an enforcer, and runs those of Kubernetes'
// specs that are about the theme of the fault ("viplab e2e"). It prints how many faults they notice, theme by theme. A
// run ends with the first spec that fails. The same specs without a fault are the control: they must pass. Beside them
// stands how many of the faults scenarios notice, from the prove.json of a run of "viplab prove".
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/viplab/viplab/internal/suite/prove"
	"github.com/viplab/viplab/internal/suite/prove/faults"
	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/scenarios"
	"github.com/viplab/viplab/suite/spec"
)

type options struct {
	viplab   string
	proxier  string
	enforcer string
	out      string
	proof    string
	only     *regexp.Regexp
	parallel int
	limit    time.Duration
}

// trial is one fault, and what the specs said.
type trial struct {
	fault faults.Fault
	theme string        // the group of the first scenario that names the fault
	specs []string      // the groups whose specs run: those of all scenarios that name it
	prove prove.Verdict // what the scenarios said
	spec  string        // that failed; "" if none did
	err   error         // there is no result
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2efaults:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var o options
	flag.StringVar(&o.viplab, "viplab", "bin/viplab", "the program to run")
	flag.StringVar(&o.proxier, "proxier", "nftables", "proxier to put the faults into")
	flag.StringVar(&o.enforcer, "enforcer", "policy-nftables", "enforcer to put faults of network policies into")
	flag.StringVar(&o.out, "out", "viplab-out/e2efaults", "folder for the reports; what is there does not run again")
	flag.StringVar(&o.proof, "prove", "viplab-out/prove.json", "what viplab prove wrote of the proxier and the enforcer")
	flag.IntVar(&o.parallel, "parallel", 2, "how many faults are tried at once")
	flag.DurationVar(&o.limit, "time", 15*time.Minute, "limit for one fault, after which there is no result")
	only := flag.String("fault", "", "try only faults whose name matches this regular expression")
	flag.Parse()
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		return fmt.Errorf("-fault: %w", err)
	}
	verdicts, err := o.byScenarios()
	if err != nil {
		return fmt.Errorf("-prove: %w (viplab prove --proxier %s --enforcer %s writes it)", err, o.proxier, o.enforcer)
	}
	trials, err := o.trials(verdicts)
	if err != nil {
		return err
	}
	control := trial{specs: slices.Collect(maps.Keys(themes))}
	if o.try(ctx, &control); control.err != nil || control.spec != "" {
		return fmt.Errorf("without a fault: %w%s", cmp.Or(control.err, errors.New("a spec fails: ")), control.spec)
	}
	o.all(ctx, trials)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return write(os.Stdout, trials)
}

// byScenarios returns what "viplab prove" says of the faults in the proxier.
func (o options) byScenarios() (map[string]prove.Verdict, error) {
	data, err := os.ReadFile(o.proof)
	if err != nil {
		return nil, err
	}
	var proof prove.Proof
	if err := json.Unmarshal(data, &proof); err != nil {
		return nil, fmt.Errorf("%s: %w", o.proof, err)
	}
	verdicts := map[string]prove.Verdict{}
	for _, t := range proof.Trials {
		if t.Proxier == o.proxier {
			verdicts[t.Fault] = t.Verdict
		}
	}
	return verdicts, nil
}

// trials returns the faults that "viplab prove" has put into the proxier and the enforcer, in the order of the
// catalogue's groups.
func (o options) trials(verdicts map[string]prove.Verdict) (all []trial, err error) {
	list, _, err := faults.All()
	if err != nil {
		return nil, err
	}
	catalogue, err := scenarios.All()
	if err != nil {
		return nil, err
	}
	order := func(t trial) int {
		return slices.IndexFunc(catalogue, func(s spec.Scenario) bool { return s.Group == t.theme })
	}
	for _, f := range list {
		t := trial{fault: f, prove: verdicts[f.Name]}
		for _, s := range catalogue {
			if slices.Contains(f.Scenarios, s.ID) && !slices.Contains(t.specs, s.Group) {
				t.specs = append(t.specs, s.Group)
			}
		}
		tried := t.prove != "" && t.prove != prove.Foreign
		if len(t.specs) == 0 || !o.only.MatchString(f.Name) || !tried {
			continue
		}
		t.theme = t.specs[0]
		all = append(all, t)
	}
	if len(all) == 0 {
		return nil, errors.New("-fault: no fault that -prove has tried matches")
	}
	slices.SortStableFunc(all, func(a, b trial) int { return cmp.Compare(order(a), order(b)) })
	return all, nil
}

// all tries the faults, and prints each result.
func (o options) all(ctx context.Context, trials []trial) {
	var jobs errgroup.Group
	var mu sync.Mutex
	jobs.SetLimit(max(o.parallel, 1))
	for i := range trials {
		t := &trials[i]
		jobs.Go(func() error {
			began := time.Now()
			o.try(ctx, t)
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintf(os.Stderr, "%s: %s: %s, %.0f s\n", t.theme, t.fault.Name, t, time.Since(began).Seconds())
			return nil
		})
	}
	_ = jobs.Wait() // no job returns an error
}

func (t trial) String() string {
	switch {
	case t.err != nil:
		return "no result: " + t.err.Error()
	case t.spec == "":
		return "not noticed"
	}
	return "noticed by " + t.spec
}

// try runs the specs of a theme with the fault, unless an earlier run has left its report.
func (o options) try(ctx context.Context, t *trial) {
	folder := filepath.Join(o.out, o.proxier, o.enforcer, cmp.Or(t.fault.Name, "control"))
	if t.read(folder) {
		return
	}
	args := []string{"e2e", "--proxier", o.proxier, "--fail-fast", "--out", folder, "--focus", focus(t.specs),
		"--skip", tooLong}
	if t.fault.Name != "" {
		args = append(args, "--fault", t.fault.Name)
	}
	if slices.Contains(t.specs, policies) {
		args = append(args, "--enforcer", o.enforcer)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.limit, fmt.Errorf("not done within %s", o.limit))
	defer cancel()
	cmd := exec.CommandContext(ctx, o.viplab, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) } // it removes its lab
	output, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
		err = nil
	}
	switch {
	case ctx.Err() != nil:
		t.err = context.Cause(ctx)
	case err != nil:
		lines := strings.Split(strings.TrimSpace(string(output)), "\n")
		t.err = fmt.Errorf("%w: %s", err, lines[len(lines)-1])
	case !t.read(folder):
		t.err = errors.New("no report")
	}
	if t.err != nil { // the next run tries again
		t.err = errors.Join(t.err, os.RemoveAll(folder))
	}
}

// read reads the report in a folder, and reports whether there is one.
func (t *trial) read(folder string) bool {
	r, err := report.Read(folder)
	if err != nil {
		return false
	}
	for _, x := range r.Results {
		if x.Verdict == spec.Fail {
			t.spec = x.Scenario
		}
	}
	return true
}
