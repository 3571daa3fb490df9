// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/proxiers/none"
	"github.com/viplab/viplab/suite/spec"
)

// bad is a proxier that misbehaves in one way.
type bad struct {
	spec.Proxier
	name   string
	start  func() error
	apply  func(ctx context.Context, n int64) error
	usable error
	stop   func(ctx context.Context) error
	log    func() error
	starts *atomic.Int64
}

// Other implements spec.Proxier: there is none.
func (bad) Other() spec.Proxier { return nil }

func (b bad) Name() string                                { return b.name }
func (b bad) Usable(context.Context, ...lab.Family) error { return b.usable }

func (b bad) Start(_ context.Context, node spec.Node) (spec.Instance, error) {
	if b.starts != nil {
		b.starts.Add(1)
	}
	if b.start != nil {
		if err := b.start(); err != nil {
			return nil, err
		}
	}
	return &badInstance{b: b, node: node}, nil
}

type badInstance struct {
	spec.Undisturbed

	b    bad
	node spec.Node
	n    int64
}

func (i *badInstance) Apply(ctx context.Context, _ *store.Snapshot) error {
	i.n++
	if i.b.apply == nil {
		return nil
	}
	return i.b.apply(ctx, i.n)
}

func (i *badInstance) Kill(context.Context) error { return nil }

func (i *badInstance) Cleanup(ctx context.Context) error { return i.Stop(ctx) }

func (i *badInstance) Dump(context.Context, io.Writer) error { return nil }

// WriteLog implements spec.Logged.
func (i *badInstance) WriteLog(io.Writer) error {
	if i.b.log == nil {
		return nil
	}
	return i.b.log()
}

func (i *badInstance) Stop(ctx context.Context) error {
	if i.b.stop != nil {
		return i.b.stop(ctx)
	}
	return nil
}

func TestAProxierThatMisbehavesFails(t *testing.T) {
	forever := make(chan struct{})
	var started atomic.Int64
	for _, c := range []struct {
		bad   bad
		want  string
		close string // the error of removing the cluster
	}{
		{bad{name: "cannot-start", start: func() error { return errors.New("no such program") }}, "no such program", ""},
		{bad{name: "cannot-start-twice", start: func() error {
			if started.Add(1) > 1 {
				return errors.New("the port is in use")
			}
			return nil
		}}, "the port is in use", ""},
		{bad{name: "panics-at-the-start", start: func() error { panic("index out of range") }}, "index out of range", ""},
		{bad{name: "panics", apply: func(context.Context, int64) error { panic("index out of range") }},
			"index out of range", ""},
		{bad{name: "fails", apply: func(context.Context, int64) error { return errors.New("line 3: bad rule") }},
			"line 3: bad rule", ""},
		{bad{name: "hangs", apply: func(context.Context, int64) error { <-forever; return nil }}, "has not applied",
			"kill proxier: not done"},
		{bad{name: "fails-and-hangs", apply: func(_ context.Context, n int64) error {
			if n > 1 {
				<-forever
			}
			return errors.New("line 3: bad rule")
		}}, "its newest attempt: line 3: bad rule", "kill proxier: not done"},
	} {
		t.Run(c.bad.name, func(t *testing.T) {
			c.bad.Proxier = none.New()
			began := time.Now()
			results, err := runAndClose(t, engine.Options{
				Proxiers: []spec.Proxier{c.bad}, Scenarios: []spec.Scenario{simple("sound-one"), simple("sound-two")},
				ApplyLimit: time.Second,
			})
			if c.close == "" && err != nil || c.close != "" && (err == nil || !strings.Contains(err.Error(), c.close)) {
				t.Errorf("taking the cluster down says %v, want %q", err, c.close)
			}
			if r := results["sound-one"]; r.Verdict != spec.Fail || !strings.Contains(r.Reason, c.want) {
				t.Errorf("sound-one: %s (%s), want fail with %q", r.Verdict, r.Reason, c.want)
			}
			if r := results["sound-one"]; c.close == "" && strings.Contains(r.Reason, "not done") {
				t.Errorf("sound-one: %s: the programs that had started did not end", r.Reason)
			}
			if r := results["sound-two"]; r.Cause != spec.NotRun || !strings.Contains(r.Reason, "as sound-one shows") {
				t.Errorf("sound-two: %s (%s), want it not run", r.Verdict, r.Reason)
			}
			t.Logf("verdict after %s", time.Since(began).Round(time.Millisecond))
		})
	}
}

// A log that cannot be written costs a failure a file, and the run nothing.
func TestALogThatPanics(t *testing.T) {
	b := bad{
		Proxier: none.New(), name: "fails",
		apply: func(context.Context, int64) error { return errors.New("bad rule") },
		log:   func() error { panic("no such file") },
	}
	out := t.TempDir()
	r := run(t, engine.Options{Proxiers: []spec.Proxier{b}, Scenarios: []spec.Scenario{simple("sound-one")}, Out: out})
	if r := r["sound-one"]; r.Verdict != spec.Fail || !strings.Contains(r.Reason, "bad rule") {
		t.Errorf("sound-one: %s (%s), want fail", r.Verdict, r.Reason)
	}
	log, err := os.ReadFile(filepath.Join(out, "sound-one", "fails", "n1-proxier.log"))
	if err != nil || !strings.Contains(string(log), "no such file") {
		t.Errorf("n1-proxier.log: %s, %v, want the panic", log, err)
	}
}

// A proxier that fails now and then, but succeeds on a retry, has only been slow.
func TestAFailedApplyIsTriedAgain(t *testing.T) {
	b := bad{Proxier: none.New(), name: "moody", apply: func(_ context.Context, n int64) error {
		if n%3 == 1 {
			return errors.New("try again")
		}
		return nil
	}}
	for id, r := range run(t, engine.Options{Proxiers: []spec.Proxier{b},
		Scenarios: []spec.Scenario{simple("sound-one")}}) {
		if r.Verdict != spec.Pass {
			t.Errorf("%s: %s (%s), want pass", id, r.Verdict, r.Reason)
		}
	}
}

// A panic at the end changes no verdict.
func TestAProxierThatPanicsAtTheEnd(t *testing.T) {
	b := bad{Proxier: none.New(), name: "panics", stop: func(context.Context) error { panic("index out of range") }}
	results, err := runAndClose(t, engine.Options{
		Proxiers: []spec.Proxier{b}, Scenarios: []spec.Scenario{simple("sound-one")},
	})
	if err == nil || !strings.Contains(err.Error(), "index out of range") {
		t.Errorf("taking the cluster down says %v, want the panic", err)
	}
	if r := results["sound-one"]; r.Verdict != spec.Pass {
		t.Errorf("%s (%s), want pass", r.Verdict, r.Reason)
	}
}

// An interrupted run builds none of the clusters that are left.
func TestAnInterruptedRunBuildsNoMore(t *testing.T) {
	ctx, interrupt := context.WithCancelCause(t.Context())
	interrupt(errors.New("SIGINT"))
	b := bad{Proxier: none.New(), name: "sound", starts: new(atomic.Int64)}
	alone := simple("all-alone")
	alone.Cluster = &spec.ClusterConfig{}
	r, err := engine.Start(ctx, engine.Options{
		Proxiers: []spec.Proxier{b}, Scenarios: []spec.Scenario{simple("sound-one"), alone},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for _, x := range r.Results() {
		if x.Verdict != spec.Broken || !strings.Contains(x.Reason, "SIGINT") {
			t.Errorf("%s: %s (%s), want broken by SIGINT", x.Scenario.ID, x.Verdict, x.Reason)
		}
	}
	if n := b.starts.Load(); n != 0 {
		t.Errorf("%d programs were started", n)
	}
}

// TestAnInterruptedRunDoesNotStopGently: once a run is interrupted, it kills its programs. One that ignores SIGTERM
// would hold the run until its grace is over.
func TestAnInterruptedRunDoesNotStopGently(t *testing.T) {
	ctx, interrupt := context.WithCancelCause(t.Context())
	b := bad{
		Proxier: none.New(), name: "sound",
		apply: func(context.Context, int64) error { interrupt(errors.New("SIGINT")); return nil },
		stop:  func(context.Context) error { return errors.New("it was asked to stop") },
	}
	r, err := engine.Start(ctx, engine.Options{
		Proxiers: []spec.Proxier{b}, Scenarios: []spec.Scenario{simple("sound-one"), simple("sound-two")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
