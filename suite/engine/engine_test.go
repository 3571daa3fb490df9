package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/kube"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/proxiers/none"
	"github.com/viplab/viplab/scenarios"
	. "github.com/viplab/viplab/scenarios/given"
	"github.com/viplab/viplab/suite/engine"
	"github.com/viplab/viplab/suite/spec"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

// run plans and runs, and gives the results by scenario.
func run(t *testing.T, o engine.Options) map[string]spec.Result {
	t.Helper()
	out, err := runAndClose(t, o)
	if err != nil {
		t.Error(err)
	}
	return out
}

func runAndClose(t *testing.T, o engine.Options) (map[string]spec.Result, error) {
	t.Helper()
	cells, err := engine.Plan(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	r := engine.NewRun(cells, o)
	r.Do(t.Context())
	out := map[string]spec.Result{}
	for _, x := range r.Results() {
		out[x.Scenario.ID] = x
	}
	return out, r.Close(t.Context())
}

// Every scenario that is about a proxier fails where none works, and the others, which say so, pass: so each can fail,
// and none fails for a reason of the harness.
func TestAProxierThatDoesNothingFails(t *testing.T) {
	for id, r := range run(t, engine.Options{
		Proxiers: []spec.Proxier{none.New()}, Scenarios: scenarios.All(), Stack: lab.Dual, Out: t.TempDir(),
	}) {
		want := spec.Fail
		if r.Scenario.Inert {
			want = spec.Pass
		}
		if r.Verdict != want {
			t.Errorf("%s: %s, want %s: %s", id, r.Verdict, want, r.Reason)
		}
	}
}

// simple is a scenario that any proxier that does nothing passes.
func simple(id string) spec.Scenario {
	return spec.Scenario{
		ID: id, Group: "test", Why: "a pod reaches a pod", Priority: spec.P0, Source: "this test", Inert: true,
		Given: []kube.Object{Pod("c1", "n1"), Backend("a2", "n2")},
		Steps: []spec.Step{{Rows: []spec.Row{{From: "c1", To: spec.HostAt("a2", 8080), By: []string{"a2"}}}}},
	}
}

func TestAFaultOfTheHarnessIsBroken(t *testing.T) {
	unknownHost := simple("broken-unknown-host")
	unknownHost.Steps = []spec.Step{{Rows: []spec.Row{{From: "nobody", To: spec.HostAt("a2", 8080), By: []string{"a2"}}}}}
	noAddress := simple("broken-no-address")
	noAddress.Steps = []spec.Step{{Rows: []spec.Row{{From: "c1", To: spec.ClusterIPOf("missing", 80), By: []string{"a2"}}}}}
	badAction := simple("broken-action")
	badAction.Steps = []spec.Step{{Do: []spec.Action{Delete("Pod", "missing")}, Rows: simple("x-y").Steps[0].Rows}}
	badScene := simple("broken-scene")
	badScene.Given = []kube.Object{Pod("c1", "no-such-node")}
	badFault := simple("broken-check")
	badFault.Steps = []spec.Step{{Check: func(context.Context, spec.World) error { return spec.Faultf("no socket left") }}}
	badPanic := simple("broken-panic")
	badPanic.Steps = []spec.Step{{Check: func(context.Context, spec.World) error { panic("an error of the scenario's own") }}}
	results := run(t, engine.Options{
		Proxiers:  []spec.Proxier{none.New()},
		Scenarios: []spec.Scenario{unknownHost, noAddress, badAction, badScene, badFault, badPanic, simple("sound-one")},
	})
	for id, part := range map[string]string{
		"broken-unknown-host": `no host "nobody"`, "broken-no-address": "no Service missing", "broken-action": "delete Pod missing",
		"broken-scene": "no-such-node", "broken-check": "no socket left", "broken-panic": "an error of the scenario's own",
	} {
		if r := results[id]; r.Verdict != spec.Broken || !strings.Contains(r.Reason, part) {
			t.Errorf("%s: %s (%s), want broken with %q", id, r.Verdict, r.Reason, part)
		}
	}
	if r := results["sound-one"]; r.Verdict != spec.Pass {
		t.Errorf("the sound scenario beside them: %s (%s)", r.Verdict, r.Reason)
	}
}

// bad is a proxier that misbehaves in one way.
type bad struct {
	spec.Proxier
	name   string
	start  func() error
	apply  func(ctx context.Context, n int64) error
	usable error
	stop   func(ctx context.Context) error
	starts *atomic.Int64
}

func (b bad) Name() string                 { return b.name }
func (b bad) Usable(context.Context) error { return b.usable }

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
	b    bad
	node spec.Node
	n    int64
}

func (i *badInstance) Apply(ctx context.Context, _ *kube.Snapshot) error {
	i.n++
	if i.b.apply == nil {
		return nil
	}
	return i.b.apply(ctx, i.n)
}

func (i *badInstance) Kill(context.Context) error { return nil }

func (i *badInstance) Dump(context.Context, io.Writer) error { return nil }

func (i *badInstance) Stop(ctx context.Context) error {
	if i.b.stop != nil {
		return i.b.stop(ctx)
	}
	return nil
}

func TestAProxierThatMisbehavesFails(t *testing.T) {
	forever := make(chan struct{})
	for _, c := range []struct {
		bad   bad
		want  string
		close string // what taking the cluster down says
	}{
		{bad{name: "cannot-start", start: func() error { return errors.New("no such program") }}, "no such program", ""},
		{bad{name: "panics", apply: func(context.Context, int64) error { panic("index out of range") }}, "index out of range", ""},
		{bad{name: "fails", apply: func(context.Context, int64) error { return errors.New("line 3: bad rule") }}, "line 3: bad rule", ""},
		{bad{name: "hangs", apply: func(context.Context, int64) error { <-forever; return nil }}, "has not applied", "stop proxier: not done"},
		{bad{name: "fails-and-hangs", apply: func(_ context.Context, n int64) error {
			if n > 1 {
				<-forever
			}
			return errors.New("line 3: bad rule")
		}}, "its newest attempt: line 3: bad rule", "stop proxier: not done"},
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
			for id, r := range results {
				if r.Verdict != spec.Fail || !strings.Contains(r.Reason, c.want) {
					t.Errorf("%s: %s (%s), want fail with %q", id, r.Verdict, r.Reason, c.want)
				}
			}
			t.Logf("verdict after %s", time.Since(began).Round(time.Millisecond))
		})
	}
}

// What rows of profiles find out, and what scenarios remark, is told with a pass, once.
func TestAPassTellsWhatItHasFoundOut(t *testing.T) {
	s := simple("finds-out")
	served := spec.HostAt("a1", 8080)
	s.Given = []kube.Object{Backend("a1", "n1"), Pod("c1", "n1")}
	s.Steps = []spec.Step{{
		Rows: []spec.Row{
			{From: "c1", To: served, Want: spec.Reply | spec.Silence, By: []string{"a1"}, Profile: "a server"},
			{From: "c1", To: spec.HostAt("a1", 9), Want: spec.Refused | spec.Silence, Profile: "nobody"},
			{From: "c1", To: served, By: []string{"a1"}},
		},
		Check: func(_ context.Context, w spec.World) error {
			w.Remark("it took 3ms")
			w.Remark("it took 3ms")
			return nil
		},
	}}
	r := run(t, engine.Options{Proxiers: []spec.Proxier{none.New()}, Scenarios: []spec.Scenario{s}, Stack: lab.Dual})[s.ID]
	if r.Verdict != spec.Pass || r.Reason != "a server: Reply\nnobody: Refused\nit took 3ms" {
		t.Errorf("%s: %q", r.Verdict, r.Reason)
	}
}

// A proxier that fails now and then, but gets it right when asked again, has only been slow.
func TestAFailedApplyIsTriedAgain(t *testing.T) {
	b := bad{Proxier: none.New(), name: "moody", apply: func(_ context.Context, n int64) error {
		if n%3 == 1 {
			return errors.New("try again")
		}
		return nil
	}}
	for id, r := range run(t, engine.Options{Proxiers: []spec.Proxier{b}, Scenarios: []spec.Scenario{simple("sound-one")}}) {
		if r.Verdict != spec.Pass {
			t.Errorf("%s: %s (%s), want pass", id, r.Verdict, r.Reason)
		}
	}
}

// modest declares nothing.
type modest struct{ bad }

func (modest) Features() spec.FeatureSet { return spec.Features() }

func TestSkipsAreDecidedBeforeAnythingIsBuilt(t *testing.T) {
	var starts atomic.Int64
	s := simple("needs-hairpin")
	s.Needs = []spec.Feature{spec.Hairpin}
	unusable := bad{Proxier: none.New(), name: "unusable", starts: &starts, usable: &spec.UnusableError{Missing: "the program xyz", Cure: "apt-get install xyz"}}
	untold := bad{Proxier: none.New(), name: "untold", starts: &starts, usable: errors.New("permission denied")}
	for _, c := range []struct {
		proxier spec.Proxier
		verdict spec.Verdict
		want    string
	}{
		{modest{bad{Proxier: none.New(), name: "modest", starts: &starts}}, spec.Skip, "modest does not declare hairpin"},
		{unusable, spec.Skip, "apt-get install xyz"},
		{untold, spec.Broken, "cannot tell whether untold can run here: permission denied"},
	} {
		r := run(t, engine.Options{Proxiers: []spec.Proxier{c.proxier}, Scenarios: []spec.Scenario{s}})["needs-hairpin"]
		if r.Verdict != c.verdict || !strings.Contains(r.Reason, c.want) {
			t.Errorf("%s: %s (%s), want %s with %q", c.proxier.Name(), r.Verdict, r.Reason, c.verdict, c.want)
		}
	}
	if n := starts.Load(); n != 0 {
		t.Errorf("a skipped proxier was started %d times", n)
	}
}

func TestAScenarioIsSkippedWhereItsFamiliesAreNot(t *testing.T) {
	s := simple("about-both")
	s.Families = []lab.Family{lab.V4, lab.V6}
	for stack, want := range map[lab.Stack]spec.Verdict{lab.IPv4: spec.Skip, lab.IPv6: spec.Skip, lab.Dual: spec.Pass} {
		r := run(t, engine.Options{Proxiers: []spec.Proxier{none.New()}, Scenarios: []spec.Scenario{s}, Stack: stack})["about-both"]
		if r.Verdict != want {
			t.Errorf("stack %s: %s (%s), want %s", stack, r.Verdict, r.Reason, want)
		}
	}
}

// Some proxiers cannot be told everything that an administrator may want. Scenarios that need it are skipped, the others run.
func TestAConfigurationThatAProxierCannotTakeIsASkip(t *testing.T) {
	own := simple("wants-masquerade-all")
	own.Own = &spec.Own{Proxy: spec.ProxyConfig{MasqueradeAll: true}}
	p := unconfigurable{bad{Proxier: none.New(), name: "unconfigurable"}}
	results := run(t, engine.Options{Proxiers: []spec.Proxier{p}, Scenarios: []spec.Scenario{own, simple("sound-one")}})
	if r := results[own.ID]; r.Verdict != spec.Skip || !strings.Contains(r.Reason, "a flag for it") {
		t.Errorf("%s: %s (%s), want skip", own.ID, r.Verdict, r.Reason)
	}
	if r := results["sound-one"]; r.Verdict != spec.Pass {
		t.Errorf("the other scenario: %s (%s), want pass", r.Verdict, r.Reason)
	}
}

// unconfigurable takes no configuration.
type unconfigurable struct{ bad }

func (u unconfigurable) Start(ctx context.Context, node spec.Node) (spec.Instance, error) {
	if node.Config.MasqueradeAll {
		return nil, &spec.UnusableError{Missing: "a flag for it", Cure: "ask its authors"}
	}
	return u.bad.Start(ctx, node)
}

func TestTrySkippedReportsAnUndeclaredFeature(t *testing.T) {
	s := simple("needs-hairpin")
	s.Needs = []spec.Feature{spec.Hairpin}
	r := run(t, engine.Options{
		Proxiers: []spec.Proxier{modest{bad{Proxier: none.New(), name: "modest"}}}, Scenarios: []spec.Scenario{s}, TrySkipped: true,
	})["needs-hairpin"]
	if r.Verdict != spec.Fail || !strings.Contains(r.Reason, "passes, but does not declare hairpin") {
		t.Errorf("%s (%s)", r.Verdict, r.Reason)
	}
}

func TestPlansThatWouldProveNothingAreErrors(t *testing.T) {
	for want, o := range map[string]engine.Options{
		"no scenario matches": {Proxiers: []spec.Proxier{none.New()}, Scenarios: scenarios.All(), Focus: regexp.MustCompile("^nothing$")},
		"named twice":         {Proxiers: []spec.Proxier{none.New(), none.New()}, Scenarios: scenarios.All()},
		"written twice":       {Proxiers: []spec.Proxier{none.New()}, Scenarios: append(scenarios.All(), scenarios.All()...)},
	} {
		if _, err := engine.Plan(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

func TestShardsCoverEverythingOnce(t *testing.T) {
	seen := map[string]int{}
	for shard := 1; shard <= 3; shard++ {
		cells, err := engine.Plan(t.Context(), engine.Options{
			Proxiers: []spec.Proxier{none.New()}, Scenarios: scenarios.All(), Shard: shard, Shards: 3,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cells {
			seen[c.Scenario.ID]++
		}
	}
	for _, s := range scenarios.All() {
		if seen[s.ID] != 1 {
			t.Errorf("%s is in %d of 3 shards", s.ID, seen[s.ID])
		}
	}
}

// A failure leaves what explains it: all rows, the rules, conntrack entries, the cluster, and the packets.
func TestAFailureLeavesItsEvidence(t *testing.T) {
	out := t.TempDir()
	o := engine.Options{
		Proxiers: []spec.Proxier{none.New()}, Scenarios: scenarios.All(), Out: out,
		Focus: regexp.MustCompile("^nodeport-every-node$"),
	}
	r := run(t, o)["nodeport-every-node"]
	for _, want := range []string{
		"3 of 3 rows do not hold", "client -> n3:nodePort(web:80)/tcp v4", "Reply by a2", "Refused",
		"again: viplab conform --proxier none --focus '^nodeport-every-node$' --ip 4 --pods bridge --overlay auto",
	} {
		if !strings.Contains(r.Reason, want) {
			t.Errorf("the account of the failure lacks %q:\n%s", want, r.Reason)
		}
	}
	for file, want := range map[string]string{
		"failure.txt": "works on every node", "n1-rules.txt": "nothing", "n2-conntrack.txt": "", "n3-network.txt": "eth0",
		"cluster.yaml": "nodePort: ", "proxier.log": "", "packets.pcapng": "\x0a\x0d\x0d\x0a",
	} {
		data, err := os.ReadFile(filepath.Join(out, "nodeport-every-node", "none", file))
		if err != nil {
			t.Error(err)
		} else if !strings.Contains(string(data), want) {
			t.Errorf("%s lacks %q", file, want)
		}
	}
	if len(r.Files) == 0 || !strings.HasPrefix(r.Files[0], "nodeport-every-node/none/") {
		t.Errorf("files of the result: %v", r.Files)
	}
}

// What a scenario makes is gone when it has ended, and the next one with the same names starts afresh.
func TestScenariosCleanUpAfterThemselves(t *testing.T) {
	var seen atomic.Int64
	first := simple("cleans-up-one")
	second := simple("cleans-up-two")
	second.Steps = append(second.Steps, spec.Step{Check: func(_ context.Context, w spec.World) error {
		for _, p := range w.Kube().Snapshot().Pods {
			if p.Namespace == w.Namespace() {
				seen.Add(1)
			}
		}
		if seen.Load() != 2 {
			return fmt.Errorf("%d pods in the scenario's namespace", seen.Load())
		}
		return nil
	}})
	for id, r := range run(t, engine.Options{Proxiers: []spec.Proxier{none.New()}, Scenarios: []spec.Scenario{first, second}}) {
		if r.Verdict != spec.Pass {
			t.Errorf("%s: %s (%s)", id, r.Verdict, r.Reason)
		}
	}
}
