// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/proxiers/none"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// diary is a proxier that records the calls of its methods on n1.
type diary struct {
	spec.Proxier
	name string
	book *book
}

type book struct {
	mu    sync.Mutex
	lines []string
}

func (b *book) note(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.lines) == 0 || b.lines[len(b.lines)-1] != line {
		b.lines = append(b.lines, line)
	}
}

func (d diary) Name() string        { return d.name }
func (d diary) Other() spec.Proxier { return diary{d.Proxier, "other", d.book} }

func (d diary) Start(_ context.Context, n spec.Node) (spec.Instance, error) {
	in := diaryInstance{diary: d, kept: n.Name == "n1"}
	in.note("start")
	return in, nil
}

type diaryInstance struct {
	spec.Undisturbed

	diary diary
	kept  bool
}

func (i diaryInstance) note(what string) {
	if i.kept {
		i.diary.book.note(i.diary.name + " " + what)
	}
}

func (i diaryInstance) Apply(context.Context, *store.Snapshot) error { i.note("apply"); return nil }
func (i diaryInstance) Dump(context.Context, io.Writer) error        { return nil }
func (i diaryInstance) Stop(context.Context) error                   { i.note("stop"); return nil }
func (i diaryInstance) Kill(context.Context) error                   { i.note("kill"); return nil }
func (i diaryInstance) Cleanup(context.Context) error                { i.note("cleanup"); return nil }

// lives is a scenario that does something with the proxier of n1.
func lives(id string, own *spec.ClusterConfig, do func(context.Context, spec.World, spec.Control) error) spec.Scenario {
	s := simple(id)
	s.Cluster = own
	s.Steps = []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
		return do(ctx, w, w.ProxierControl("n1"))
	}}}
	return s
}

func TestTheLifeOfAProxier(t *testing.T) {
	b := &book{}
	settled := func(ctx context.Context, w spec.World) error {
		if err := w.Apply(Pod("more", "n2")); err != nil {
			return err
		}
		return w.Settle(ctx)
	}
	s := lives("proxier-comes-and-goes", &spec.ClusterConfig{},
		func(ctx context.Context, w spec.World, n1 spec.Control) error {
			for _, do := range []func() error{
				func() error { return n1.Kill(ctx) },
				func() error { return settled(ctx, w) }, // which does not wait for n1
				func() error { return n1.Start(ctx) },
				func() error { return w.Settle(ctx) },
				func() error {
					release, err := n1.StartWithoutEndpoints(ctx)
					b.note("released")
					release()
					return err
				},
				func() error { return w.Settle(ctx) },
				func() error { return n1.Switch(ctx) },
				func() error { return w.Settle(ctx) },
				func() error { return n1.Cleanup(ctx) },
			} {
				if err := do(); err != nil {
					return err
				}
			}
			return nil
		})
	results := run(t, engine.Options{
		Proxiers: []spec.Proxier{diary{none.New(), "diary", b}}, Scenarios: []spec.Scenario{s},
	})
	if r := results[s.ID]; r.Verdict != spec.Pass {
		t.Fatalf("%s: %s", r.Verdict, r.Reason)
	}
	got := strings.Join(b.lines, ", ")
	want := "diary start, diary apply, diary kill, diary start, diary apply, diary kill, diary start, released, diary " +
		"apply, " +
		"diary kill, other start, other apply, other cleanup"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestALifeThatIsNotToBeTouched(t *testing.T) {
	kill := func(ctx context.Context, _ spec.World, n1 spec.Control) error { return n1.Kill(ctx) }
	swap := func(ctx context.Context, _ spec.World, n1 spec.Control) error { return n1.Switch(ctx) }
	results := run(t, engine.Options{
		Proxiers:  []spec.Proxier{bad{Proxier: none.New(), name: "plain"}},
		Scenarios: []spec.Scenario{lives("shared-one", nil, kill), lives("no-other-mode", &spec.ClusterConfig{}, swap)},
	})
	for id, want := range map[string]struct {
		verdict spec.Verdict
		reason  string
	}{
		"shared-one":    {spec.Broken, "a cluster of its own"},
		"no-other-mode": {spec.Fail, "plain has no other mode"},
	} {
		if r := results[id]; r.Verdict != want.verdict || !strings.Contains(r.Reason, want.reason) {
			t.Errorf("%s: %s (%s), want %s with %q", id, r.Verdict, r.Reason, want.verdict, want.reason)
		}
	}
}

// During judges every probe: later successes do not make up for a failed one.
func TestTrafficBesideSomethingElse(t *testing.T) {
	direct := spec.Row{From: "c1", To: spec.HostAt("a2", 8080), Servers: []string{"a2"}}
	during := func(id string, f func(context.Context, spec.World, spec.Traffic) error) spec.Scenario {
		s := simple(id)
		s.Steps = []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
			return w.During(ctx, []spec.Row{direct}, func(ctx context.Context, t spec.Traffic) error { return f(ctx, w, t) })
		}}}
		return s
	}
	results := run(t, engine.Options{Proxiers: []spec.Proxier{none.New()}, Scenarios: []spec.Scenario{
		during("goes-on", func(ctx context.Context, w spec.World, t spec.Traffic) error {
			server, err := w.Server("a2")
			if err != nil {
				return err
			}
			before := len(server.Arrivals())
			if err := t.Rounds(ctx, 20); err != nil {
				return err
			}
			if n := len(server.Arrivals()) - before; n < 20 {
				return spec.HarnessErrorf("a2 has seen %d events in 20 rounds", n)
			}
			return nil
		}),
		during("is-interrupted", func(ctx context.Context, w spec.World, t spec.Traffic) error {
			server, err := w.Server("a2")
			if err != nil {
				return err
			}
			if err := server.Close(); err != nil {
				return err
			}
			return t.Rounds(ctx, 2)
		}),
	}})
	if r := results["goes-on"]; r.Verdict != spec.Pass {
		t.Errorf("goes-on: %s (%s)", r.Verdict, r.Reason)
	}
	if r := results["is-interrupted"]; r.Verdict != spec.Fail || !strings.Contains(r.Reason, "Refused (RST)") {
		t.Errorf("is-interrupted: %s (%s), want a failure that says Refused", r.Verdict, r.Reason)
	}
}
