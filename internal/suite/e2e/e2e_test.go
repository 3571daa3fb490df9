// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/viplab/viplab/internal/release"
	"github.com/viplab/viplab/suite/expect"
	"github.com/viplab/viplab/suite/spec"
)

// actingVariable makes the test binary act as the tests of Kubernetes. Its value is a folder.
const actingVariable = "E2E_TEST_ACTING"

func TestMain(m *testing.M) {
	if folder := os.Getenv(actingVariable); folder != "" {
		for _, name := range []string{"kubeconfig", "kubectl-path", "provider", "node-os-distro", "num-nodes", "minStartupPods",
			"allowed-not-ready-nodes", "e2e-output-dir", "delete-namespace-on-failure"} {
			flag.String(name, "", "")
		}
		flag.Parse()
		if !act(folder) {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// noTest takes the place of the test that Ginkgo wants.
type noTest struct{}

func (noTest) Fail() {}

// act runs a suite with the features of Kubernetes' own: things that the first process does for all, steps, specs that
// fail, skip themselves, or want to be alone. It reports whether they have passed.
func act(folder string) bool {
	gomega.RegisterFailHandler(ginkgo.Fail)
	broken := os.Getenv("E2E_TEST_BROKEN") != ""
	ginkgo.SynchronizedBeforeSuite(func() []byte {
		if broken {
			ginkgo.Fail("no cluster")
		}
		return []byte("from the first")
	}, func(data []byte) { gomega.Expect(string(data)).To(gomega.Equal("from the first")) })
	ginkgo.Describe("[sig-network] Things", func() {
		for _, name := range []string{"one", "two", "three", "four"} {
			ginkgo.It("should hold "+name+" [Conformance]", func() {})
		}
		ginkgo.It("should fail", func() {
			ginkgo.By("asking the pod")
			ginkgo.GinkgoWriter.Println("a line of the log")
			ginkgo.DeferCleanup(func() { ginkgo.By(`Collecting events from namespace "ns-1".`) })
			ginkgo.Fail("got nothing\nwant something")
		})
		ginkgo.It("should skip itself", func() { ginkgo.Skip("it needs 7 zones") })
		ginkgo.It("should panic", func() { panic("oh") })
		ginkgo.It("should be alone", ginkgo.Serial, func() {})
		ginkgo.It("should wait", func(ctx context.Context) {
			if err := os.WriteFile(filepath.Join(folder, "waits"), nil, 0o644); err != nil {
				panic(err)
			}
			select {}
		})
		ginkgo.It("should kill its process", func() { os.Exit(7) })
	})
	ginkgo.Describe("[sig-node] Others", func() { ginkgo.It("should not run", func() { ginkgo.Fail("it ran") }) })
	return ginkgo.RunSpecs(noTest{}, "acting")
}

// acting returns a suite whose program is this one.
func acting(t *testing.T) Suite {
	t.Helper()
	folder := t.TempDir()
	t.Setenv("VIPLAB_CACHE", folder)
	t.Setenv(actingVariable, folder)
	s := Suite{Version: release.Default}
	path, err := s.tests().Path()
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(self, path)); err != nil {
		t.Fatal(err)
	}
	return s
}

// here is the place of this process.
type here struct{ net.ListenConfig }

func (here) Start(cmd *exec.Cmd) error { return cmd.Start() }

// run runs the specs whose names a test accepts.
func (s Suite) tried(t *testing.T, ctx context.Context, known *expect.Known, is func(name string) bool) (
	map[string]spec.Result, error) {
	t.Helper()
	specs, err := s.Specs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	specs = slices.DeleteFunc(specs, func(s Spec) bool { return !is(s.Name) })
	out := t.TempDir()
	var told []spec.Result
	results, err := s.Run(ctx, Options{
		Place: &here{}, Kubeconfig: filepath.Join(out, "kubeconfig"), Nodes: 3, Specs: specs, Parallel: 3, Proxier: "p",
		Out: out, Expect: known, Evidence: func(ns string, w io.Writer) { fmt.Fprintf(w, "what %s shows", ns) },
		Listen: func(r spec.Result) { told = append(told, r) },
	})
	if len(results) != len(specs) {
		t.Fatalf("%d results of %d specs", len(results), len(specs))
	}
	byName := map[string]spec.Result{}
	for i, r := range results {
		if r.Scenario.ID != specs[i].Name || r.Proxier != "p" {
			t.Errorf("result %d is of %s on %s, want %s on p", i, r.Scenario.ID, r.Proxier, specs[i].Name)
		}
		name := strings.TrimPrefix(r.Scenario.ID, "Things should ")
		byName[name] = r
		for _, f := range r.Files {
			log, err := os.ReadFile(filepath.Join(out, f))
			if err != nil || !strings.Contains(string(log), r.Scenario.ID) {
				t.Errorf("the log of %q: %v\n%s", name, err, log)
			}
			byName[name+" log"] = spec.Result{Reason: string(log)}
		}
	}
	for _, r := range told {
		if got := byName[strings.TrimPrefix(r.Scenario.ID, "Things should ")]; got.Verdict != r.Verdict {
			t.Errorf("%s: told %s, returned %s", r.Scenario.ID, r.Verdict, got.Verdict)
		}
	}
	return byName, err
}

func well(name string) bool {
	return !strings.Contains(name, "wait") && !strings.Contains(name, "kill")
}

func TestResultsOfParallelProcesses(t *testing.T) {
	results, err := acting(t).tried(t, t.Context(), nil, well)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]spec.Verdict{
		"hold one [Conformance]": spec.Pass, "hold two [Conformance]": spec.Pass, "hold three [Conformance]": spec.Pass,
		"hold four [Conformance]": spec.Pass, "be alone": spec.Pass, "fail": spec.Fail, "panic": spec.Fail, "skip itself": spec.Skip,
	} {
		if got := results[name]; got.Verdict != want {
			t.Errorf("%s: %s (%s), want %s", name, got.Verdict, got.Reason, want)
		}
	}
	if p := results["hold one [Conformance]"].Scenario.Priority; p != spec.P0 {
		t.Errorf("a conformance spec has priority %s", p)
	}
	for name, words := range map[string][]string{
		"fail":        {"step: asking the pod\n", "got nothing\nwant something", "/e2e_test.go:", "log: "},
		"fail log":    {"a line of the log", "what ns-1 shows"},
		"panic":       {"panicked: ", "oh"},
		"skip itself": {"it skips itself: it needs 7 zones"},
	} {
		for _, word := range words {
			if got := results[name].Reason; !strings.Contains(got, word) {
				t.Errorf("%s: no %q in %q", name, word, got)
			}
		}
	}
	if cause := results["skip itself"].Cause; cause != spec.NotRun {
		t.Errorf("cause %q", cause)
	}
}

func TestOneSpecAloneHasAResult(t *testing.T) {
	fails := func(name string) bool { return strings.HasSuffix(name, "fail") }
	results, err := acting(t).tried(t, t.Context(), nil, fails)
	if err != nil || results["fail"].Verdict != spec.Fail {
		t.Errorf("%v, %s: %s", err, results["fail"].Verdict, results["fail"].Reason)
	}
}

func TestExpectations(t *testing.T) {
	file, err := expect.Parse("known.yaml", []byte(`proxier: p
expect:
- {scenario: Things should fail, issue: none, reason: it does}
- {scenario: "Things should hold one [Conformance]", issue: none, reason: it did}
`))
	if err != nil {
		t.Fatal(err)
	}
	known, err := file.For(expect.Run{}, []string{"Things should fail", "Things should hold one [Conformance]"})
	if err != nil {
		t.Fatal(err)
	}
	results, err := acting(t).tried(t, t.Context(), known, well)
	if err != nil {
		t.Fatal(err)
	}
	if got := results["fail"].Verdict; got != spec.Known {
		t.Errorf("an expected failure is %s", got)
	}
	if got := results["hold one [Conformance]"]; got.Verdict != spec.Fail || !strings.Contains(got.Reason, "UNEXPECTED") {
		t.Errorf("an unexpected pass is %s: %s", got.Verdict, got.Reason)
	}
}

func TestAnInterruptionKeepsResults(t *testing.T) {
	s := acting(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var once sync.Once
	waits := filepath.Join(os.Getenv(actingVariable), "waits")
	specs, err := s.Specs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	specs = slices.DeleteFunc(specs, func(s Spec) bool {
		return !strings.Contains(s.Name, "one") && !strings.Contains(s.Name, "wait")
	})
	results, err := s.Run(ctx, Options{Place: &here{}, Kubeconfig: filepath.Join(t.TempDir(), "k"), Nodes: 3, Specs: specs,
		Parallel: 2, Proxier: "p", Out: t.TempDir(), Listen: func(r spec.Result) {
			once.Do(func() {
				if _, err := os.Stat(waits); err != nil {
					t.Logf("the spec that waits has not begun: %v", err)
				}
				cancel()
			})
		}})
	if !errors.Is(err, ErrInterrupted) || len(results) != 3 {
		t.Fatalf("%v, %d results", err, len(results))
	}
	count := map[spec.Verdict]int{}
	for _, r := range results {
		count[r.Verdict]++
	}
	if count[spec.Pass] == 0 || count[spec.Skip] == 0 || count[spec.Fail]+count[spec.Broken] > 0 {
		t.Errorf("verdicts: %v", count)
	}
}

// The spec that waits never ends by itself.
func TestFailFastEndsARun(t *testing.T) {
	s := acting(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	specs, err := s.Specs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	specs = slices.DeleteFunc(specs, func(s Spec) bool {
		return !strings.HasSuffix(s.Name, "fail") && !strings.HasSuffix(s.Name, "wait")
	})
	results, err := s.Run(ctx, Options{
		Place: &here{}, Kubeconfig: filepath.Join(t.TempDir(), "k"), Nodes: 3, Specs: specs, Parallel: 2, Proxier: "p",
		Out: t.TempDir(), FailFast: true,
	})
	if err != nil || len(results) != 2 {
		t.Fatalf("%v, %d results", err, len(results))
	}
	for _, r := range results {
		want, reason := spec.Fail, "got nothing"
		if strings.HasSuffix(r.Scenario.ID, "wait") {
			want, reason = spec.Skip, errFailedFast.Error()
		}
		if r.Verdict != want || !strings.Contains(r.Reason, reason) {
			t.Errorf("%s: %s (%s), want %s (%s)", r.Scenario.ID, r.Verdict, r.Reason, want, reason)
		}
	}
}

func TestAProcessThatDiesBreaksItsSpec(t *testing.T) {
	results, err := acting(t).tried(t, t.Context(), nil, func(name string) bool {
		return strings.Contains(name, "kill") || strings.Contains(name, "hold")
	})
	if err != nil {
		t.Fatal(err)
	}
	got := results["kill its process"]
	if got.Verdict != spec.Broken || !strings.Contains(got.Reason, "exit status 7") {
		t.Errorf("%s: %s", got.Verdict, got.Reason)
	}
}

func TestASuiteThatCannotStartBreaksAllSpecs(t *testing.T) {
	t.Setenv("E2E_TEST_BROKEN", "1")
	results, err := acting(t).tried(t, t.Context(), nil, well)
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range results {
		if r.Verdict != spec.Broken || !strings.Contains(r.Reason, "no cluster") {
			t.Errorf("%s: %s: %s", name, r.Verdict, r.Reason)
		}
	}
}

func TestEveryReasonConcernsASpec(t *testing.T) {
	if err := CheckObstacles(nil); err == nil {
		t.Error("reasons without specs are no error")
	}
	s := Suite{Version: release.Default}
	path, err := s.tests().Path()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("viplab e2e has not built the tests of Kubernetes: %v", err)
	}
	specs, err := s.Specs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckObstacles(specs); err != nil {
		t.Error(err)
	}
	everything := Lab{Enforcer: true, SCTP: true, DualIP: true, Slow: true, KubeProxy: true, SourceAddress: true}
	runnable, omitted := s.Part(specs, everything, "p")
	if len(runnable) < 200 || len(runnable)+len(omitted) != len(specs) {
		t.Errorf("%d specs run, %d do not, of %d", len(runnable), len(omitted), len(specs))
	}
	for _, s := range specs {
		if o := obstacleOf(s, everything); o != nil && s.Conformance() {
			t.Errorf("%s does not run: %s", s.Name, o.reason)
		}
	}
	for _, lack := range []func(*Lab){
		func(l *Lab) { l.Enforcer = false }, func(l *Lab) { l.SCTP = false }, func(l *Lab) { l.DualIP = false },
		func(l *Lab) { l.Slow = false }, func(l *Lab) { l.KubeProxy = false }, func(l *Lab) { l.SourceAddress = false },
	} {
		l := everything
		lack(&l)
		if fewer, _ := s.Part(specs, l, "p"); len(fewer) >= len(runnable) {
			t.Errorf("a lab with %+v runs %d specs, one with all %d", l, len(fewer), len(runnable))
		}
	}
}
