// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/viplab/viplab/internal/suite/expected"
	"github.com/viplab/viplab/suite/expect"
	"github.com/viplab/viplab/suite/spec"
)

// Place is where the processes of the tests run: a netns.NS.
type Place interface {
	Listen(ctx context.Context, network, address string) (net.Listener, error)
	Start(cmd *exec.Cmd) error
}

// Options describe a run of specs.
type Options struct {
	// Place must reach the API, NodePorts and load balancers, and itself on 127.0.0.1.
	Place Place
	// Kubeconfig is a file.
	Kubeconfig string
	// Nodes is how many nodes the cluster has.
	Nodes int
	// Specs are those to run.
	Specs []Spec
	// Parallel is how many processes run them, as Processes says.
	Parallel int
	// Proxier is the name in results.
	Proxier string
	// Out is a folder. The log of each spec that fails is in it, below the name of the proxier.
	Out string
	// Expect are the known failures; nil means none.
	Expect *expect.Known
	// Evidence writes what the namespace of a failed spec shows, which is there until Evidence returns. nil means nothing.
	Evidence func(namespace string, w io.Writer)
	// Listen is called with each result at once. It may be nil.
	Listen func(spec.Result)
	// FailFast ends the run with the first failure that is not known. Specs without a result by then are skipped.
	FailFast bool
}

// ErrInterrupted says that a run has ended early. What had run by then has results.
var ErrInterrupted = errors.New("the run was interrupted")

// errFailedFast says why the other specs have not run.
var errFailedFast = errors.New("the run ended with the first failure")

// Run runs specs, and returns a result for each in their order. If the context ends it kills the processes, and the
// error is ErrInterrupted.
func (s Suite) Run(ctx context.Context, o Options) ([]spec.Result, error) {
	program, err := s.tests().Path()
	if err != nil {
		return nil, err
	}
	kubectl, err := s.kubectl().Path()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r := &run{Options: o, version: s.Version, program: program, stop: stop, results: map[string]spec.Result{}}
	if err := r.processes(ctx, Processes(o.Parallel, len(o.Specs)), r.arguments(kubectl)); err != nil {
		return nil, err
	}
	return r.all(ctx)
}

// Processes returns how many processes run the specs: as many as parallel, but no more than there are specs, and at
// least two. Ginkgo sends no reports from a process that runs alone.
func Processes(parallel, specs int) int { return max(2, min(parallel, specs)) }

type run struct {
	Options
	version, program string
	stop             context.CancelFunc

	mu      sync.Mutex
	stopped bool                   // by FailFast: later reports are of specs that it has interrupted
	results map[string]spec.Result // by name of the spec
	broken  []string               // why specs could not run: what failed before all, and how processes died
}

// seed decides in which order the specs begin. Of 30 seeds it is the best for v1.36.3: most of the specs that take
// minutes begin early. With the worst, the run waits three minutes longer for the last of them.
const seed = 6

// arguments returns the flags of each process.
func (r *run) arguments(kubectl string) []string {
	var names []string
	for _, s := range r.Specs {
		names = append(names, regexp.QuoteMeta(sig+s.Name))
	}
	return []string{
		"--test.timeout=0", "--ginkgo.timeout=24h", "--ginkgo.no-color", fmt.Sprint("--ginkgo.seed=", seed),
		"--ginkgo.focus=(?:" + strings.Join(names, "|") + ")$",
		"--kubeconfig=" + r.Kubeconfig, "--kubectl-path=" + kubectl, "--provider=skeleton", "--node-os-distro=custom",
		// Without the number, processes other than the first take the cluster for one without nodes.
		fmt.Sprint("--num-nodes=", r.Nodes), "--minStartupPods=-1", "--allowed-not-ready-nodes=-1",
		"--e2e-output-dir=" + filepath.Dir(r.Kubeconfig),
		fmt.Sprint("--delete-namespace-on-failure=", r.Evidence == nil),
	}
}

// processes runs the processes of the tests to their end.
func (r *run) processes(ctx context.Context, n int, args []string) error {
	l, err := r.Place.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for reports of the tests: %w", err)
	}
	c := coordinate(ctx, l, n, r.add)
	defer c.close()
	var running sync.WaitGroup
	defer running.Wait()
	for i := range n {
		parallel := []string{fmt.Sprint("--ginkgo.parallel.process=", i+1), fmt.Sprint("--ginkgo.parallel.total=", n),
			"--ginkgo.parallel.host=http://" + l.Addr().String()}
		cmd := exec.CommandContext(ctx, r.program, append(parallel, args...)...)
		var output bytes.Buffer
		cmd.Stdout, cmd.Stderr = &output, &output
		cmd.Env = append(os.Environ(), protocol, "TMPDIR="+filepath.Dir(r.Kubeconfig))
		// A group of its own ends with its kubectl.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.WaitDelay = time.Second // for grandchildren that hold the pipe
		if err := r.Place.Start(cmd); err != nil {
			return fmt.Errorf("start %s: %w", r.program, err)
		}
		running.Go(func() {
			r.waited(i+1, cmd.Wait(), output.Bytes)
			c.exited(i + 1)
		})
	}
	running.Wait()
	return nil
}

// waited notes how a process has ended. One with a failed spec ends with code 1.
func (r *run) waited(process int, err error, output func() []byte) {
	exit := (*exec.ExitError)(nil)
	if err == nil || errors.As(err, &exit) && exit.ExitCode() == 1 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = append(r.broken, fmt.Sprintf("process %d of the tests: %v\n%s", process, err, tail(output())))
}

// add adds the report of a spec, or of what comes before and after all specs.
func (r *run) add(report specReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return
	}
	if report.LeafNodeType != specNode {
		why := report.LeafNodeType + ": " + report.reason()
		if report.State != passed && report.State != skipped && !slices.Contains(r.broken, why) {
			r.broken = append(r.broken, why)
		}
		return
	}
	i := r.index(report)
	if i < 0 || report.State == skipped && report.Failure.Message == "" {
		return // it is not selected
	}
	result := r.result(i, report)
	expected.New(r.Expect.Of(r.Specs[i].Name)).Compare(&result, nil)
	r.results[r.Specs[i].Name] = result
	if r.Listen != nil {
		r.Listen(result)
	}
	if r.FailFast && result.Verdict == spec.Fail {
		r.stopped = true
		r.stop()
	}
}

// index returns which of the specs a report is about, or -1.
func (r *run) index(report specReport) int {
	text := report.text()
	for i, s := range r.Specs {
		if text == sig+s.Name {
			return i
		}
	}
	return -1
}

// result judges a spec by its report.
func (r *run) result(i int, report specReport) spec.Result {
	result := spec.Result{Scenario: r.Specs[i].scenario(r.version), Proxier: r.Proxier, Took: report.RunTime}
	switch report.State {
	case passed:
		result.Verdict = spec.Pass
		return result
	case skipped, pending:
		result.Verdict, result.Cause = spec.Skip, spec.NotRun
		result.Reason = "it skips itself: " + strings.ReplaceAll(shortened(report.Failure.Message), "\n", " ")
		return result
	}
	result.Verdict, result.Reason = spec.Fail, report.reason()
	file := filepath.Join(r.Proxier, slug(r.Specs[i].Name)+".log")
	if err := r.writeLog(file, report); err != nil {
		result.Reason += "\nits log could not be written: " + err.Error()
		return result
	}
	result.Files = []string{file}
	result.Reason += "\nlog: " + filepath.Join(r.Out, file)
	return result
}

func (r *run) writeLog(file string, report specReport) error {
	path := filepath.Join(r.Out, file)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n%s\n\n%s\n", report.text(), report.Failure.Message, report.reason())
	if namespace := report.namespace(); namespace != "" && r.Evidence != nil {
		r.Evidence(namespace, &b)
	}
	fmt.Fprintf(&b, "\n%s", report.log())
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// noName matches what the name of a file does not contain.
var noName = regexp.MustCompile(`[^a-z0-9]+`)

// longest is how many characters of a spec's name a file has, of the 255 that a file system allows.
const longest = 150

// slug returns a file name for a spec.
func slug(name string) string {
	name = strings.Trim(noName.ReplaceAllString(strings.ToLower(name), "-"), "-")
	return name[:min(len(name), longest)]
}

// all returns the results in the order of the specs. What has no report is broken, or not run after an interruption.
func (r *run) all(ctx context.Context) ([]spec.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var early error // why the run ended before its end
	switch {
	case r.stopped:
		early = errFailedFast
	case ctx.Err() != nil:
		early = ErrInterrupted
	}
	var out []spec.Result
	for _, s := range r.Specs {
		result, ok := r.results[s.Name]
		if !ok {
			result = spec.Result{Scenario: s.scenario(r.version), Proxier: r.Proxier, Verdict: spec.Broken,
				Reason: "the tests ended without a report of it"}
			result.Reason = strings.Join(append([]string{result.Reason}, r.broken...), "\n")
			if early != nil {
				result.Verdict, result.Cause, result.Reason = spec.Skip, spec.NotRun, early.Error()
			}
		}
		out = append(out, result)
	}
	if r.stopped {
		return out, nil
	}
	return out, early
}
