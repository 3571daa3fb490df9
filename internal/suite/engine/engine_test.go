// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/proxiers/none"
	"github.com/viplab/viplab/scenarios"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

// run plans and runs the options, and returns the results by scenario.
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

// On a proxier that does nothing, every scenario fails and leaves evidence, except those with HoldsWithoutProxier,
// which pass. So every scenario can fail, and none fails because of the harness.
func TestAProxierThatDoesNothingFails(t *testing.T) {
	for id, r := range run(t, engine.Options{
		Proxiers: []spec.Proxier{none.New()}, Scenarios: allScenarios(t), Stack: lab.Dual, FailFast: true,
		Out: t.TempDir(),
	}) {
		want := spec.Fail
		if r.Scenario.HoldsWithoutProxier {
			want = spec.Pass
		}
		if r.Verdict != want {
			t.Errorf("%s: %s, want %s: %s", id, r.Verdict, want, r.Reason)
		}
		if r.Verdict == spec.Fail && len(r.Files) == 0 {
			t.Errorf("%s: the failure leaves no evidence", id)
		}
	}
}

// A row that wants no entry fails on a node of a lab, which tracks connections, and passes where a rule forbids that.
func TestUntracked(t *testing.T) {
	tracked := simple("flow-tracked")
	tracked.Steps = []spec.Step{{Rows: []spec.Row{
		{From: "c1", To: spec.HostAt("a2", 81), Proto: "udp", Want: spec.Refused, Flow: spec.UntrackedOn("n1")},
	}}}
	untracked := tracked
	untracked.ID, untracked.Cluster = "flow-untracked", &spec.ClusterConfig{}
	untracked.Steps = []spec.Step{{Rows: tracked.Steps[0].Rows, Do: []spec.Action{{
		Name: "n1 tracks no datagram",
		Run: func(ctx context.Context, w spec.World) error {
			_, err := w.Run(ctx, "n1", "nft", `table inet untracked {
				chain first { type filter hook prerouting priority raw; meta l4proto udp notrack; }
			}`)
			return err
		},
	}}}}
	results := run(t, engine.Options{
		Proxiers: []spec.Proxier{none.New()}, Scenarios: []spec.Scenario{tracked, untracked}, Stack: lab.Dual,
	})
	if r := results["flow-tracked"]; r.Verdict != spec.Fail || !strings.Contains(r.Reason, "n1 tracks it: udp") {
		t.Errorf("a tracked flow: %s: %s", r.Verdict, r.Reason)
	}
	if r := results["flow-untracked"]; r.Verdict != spec.Pass {
		t.Errorf("an untracked flow: %s: %s", r.Verdict, r.Reason)
	}
}

// simple returns a scenario that passes on a proxier that does nothing.
func simple(id string) spec.Scenario {
	return spec.Scenario{
		ID: id, Group: "test", Why: "a pod reaches a pod", Priority: spec.P0, Source: "this test", HoldsWithoutProxier: true,
		Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2")},
		Steps: []spec.Step{{Rows: []spec.Row{{From: "c1", To: spec.HostAt("a2", 8080), Servers: []string{"a2"}}}}},
	}
}

// A machine that cannot judge a scenario is no fault of the proxier's.
func TestAScenarioMayFindThatItCannotBeJudged(t *testing.T) {
	s := simple("not-run-here")
	s.Steps = append(s.Steps, spec.Step{Check: func(context.Context, spec.World) error {
		return &spec.NotRunError{Reason: "this machine is too busy"}
	}})
	both := simple("fails-as-well")
	both.Steps = append(both.Steps, spec.Step{Check: func(context.Context, spec.World) error {
		return errors.Join(errors.New("a failure"), &spec.NotRunError{Reason: "this machine is too busy"})
	}})
	results := run(t, engine.Options{Proxiers: []spec.Proxier{none.New()}, Scenarios: []spec.Scenario{s, both}})
	if r := results[both.ID]; r.Verdict != spec.Fail {
		t.Errorf("a failure beside it: %s (%s), want that it fails", r.Verdict, r.Reason)
	}
	r := results[s.ID]
	if r.Verdict != spec.Skip || r.Cause != spec.NotRun || !strings.Contains(r.Reason, "too busy") || len(r.Files) > 0 {
		t.Errorf("got %+v, want that it is not run", r)
	}
}

func TestAFaultOfTheHarnessIsBroken(t *testing.T) {
	unknownHost := simple("broken-unknown-host")
	unknownHost.Steps = []spec.Step{{Rows: []spec.Row{
		{From: "nobody", To: spec.HostAt("a2", 8080), Servers: []string{"a2"}},
	}}}
	noAddress := simple("broken-no-address")
	noAddress.Steps = []spec.Step{{Rows: []spec.Row{{From: "c1", To: spec.ClusterIPOf("missing", 80),
		Servers: []string{"a2"}}}}}
	badAction := simple("broken-action")
	badAction.Steps = []spec.Step{{Do: []spec.Action{Delete("Pod", "missing")}, Rows: simple("x-y").Steps[0].Rows}}
	badScene := simple("broken-scene")
	badScene.Given = []store.Object{Pod("c1", "no-such-node")}
	badFault := simple("broken-check")
	badFault.Steps = []spec.Step{{Check: func(context.Context,
		spec.World) error {
		return spec.HarnessErrorf("no socket left")
	}}}
	badMust := simple("broken-must")
	badMust.Steps = []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
		return w.During(ctx, nil, func(context.Context, spec.Traffic) error {
			spec.Must(w.Host("nowhere"))
			return errors.New("a failure")
		})
	}}}
	badPanic := simple("broken-panic")
	badPanic.Steps = []spec.Step{{Check: func(context.Context,
		spec.World) error {
		panic("an error of the scenario's own")
	}}}
	results := run(t, engine.Options{
		Proxiers: []spec.Proxier{none.New()},
		Scenarios: []spec.Scenario{unknownHost, noAddress, badAction, badScene, badFault, badMust, badPanic,
			simple("sound-one")},
	})
	for id, part := range map[string]string{
		"broken-unknown-host": `no host "nobody"`, "broken-no-address": "no Service missing",
		"broken-action": "delete Pod missing", "broken-must": `harness: there is no host "nowhere"`,
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

// The report of a pass contains the choices of rows and the notes of scenarios, each once.
func TestAPassTellsWhatItHasFoundOut(t *testing.T) {
	s := simple("finds-out")
	served := spec.HostAt("a1", 8080)
	s.Given = []store.Object{Backend("a1", "n1"), Pod("c1", "n1")}
	s.Steps = []spec.Step{{
		Rows: []spec.Row{
			{From: "c1", To: served, Want: spec.Reply | spec.Silence, Servers: []string{"a1"}, Choice: "a server"},
			{From: "c1", To: spec.HostAt("a1", 9), Want: spec.Refused | spec.Silence, Choice: "nobody"},
			{From: "c1", To: served, Servers: []string{"a1"}},
		},
		Check: func(_ context.Context, w spec.World) error {
			w.Note("it took 3ms")
			w.Note("it took 3ms")
			return nil
		},
	}}
	r := run(t, engine.Options{Proxiers: []spec.Proxier{none.New()}, Scenarios: []spec.Scenario{s}, Stack: lab.Dual})[s.ID]
	if r.Verdict != spec.Pass || r.Reason != "a server: Reply\nnobody: Refused\nit took 3ms" {
		t.Errorf("%s: %q", r.Verdict, r.Reason)
	}
}

// A failure leaves its evidence: all rows, the rules, conntrack entries, the cluster and the packets.
func TestAFailureLeavesItsEvidence(t *testing.T) {
	out := t.TempDir()
	o := engine.Options{
		Proxiers: []spec.Proxier{none.New()}, Scenarios: allScenarios(t), Out: out,
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

// A scenario that judges packets leaves those that it judged last.
func TestAFailureLeavesTheCapturedPackets(t *testing.T) {
	s := simple("judges-packets")
	s.Given = []store.Object{Pod("c1", "n1"), Backend("a1", "n1")}
	s.Steps = []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
		row := spec.Row{From: "c1", To: spec.HostAt("a1", 8080), Servers: []string{"a1"}}
		captured, err := CaptureRows(ctx, w, []string{"c1"}, row)
		return errors.Join(err, fmt.Errorf("wrong packets: %d", len(captured)))
	}}}
	out := t.TempDir()
	o := engine.Options{Proxiers: []spec.Proxier{none.New()}, Scenarios: []spec.Scenario{s}, Out: out}
	if r := run(t, o)[s.ID]; r.Verdict != spec.Fail {
		t.Errorf("%s: %s", r.Verdict, r.Reason)
	}
	data, err := os.ReadFile(filepath.Join(out, s.ID, "none", "captured.pcapng"))
	if err != nil || !strings.Contains(string(data), "c1/eth0") {
		t.Errorf("captured.pcapng has no packet at c1/eth0: %v, %d bytes", err, len(data))
	}
}

// The objects of a scenario are deleted at its end, and the next one can use the same names.
func TestScenariosCleanUpAfterThemselves(t *testing.T) {
	var seen atomic.Int64
	first := simple("cleans-up-one")
	second := simple("cleans-up-two")
	second.Steps = append(second.Steps, spec.Step{Check: func(_ context.Context, w spec.World) error {
		for _, p := range w.Store().Snapshot().Pods {
			if p.Namespace == w.Namespace() {
				seen.Add(1)
			}
		}
		if seen.Load() != 2 {
			return fmt.Errorf("%d pods in the scenario's namespace", seen.Load())
		}
		return nil
	}})
	for id, r := range run(t, engine.Options{Proxiers: []spec.Proxier{none.New()},
		Scenarios: []spec.Scenario{first, second}}) {
		if r.Verdict != spec.Pass {
			t.Errorf("%s: %s (%s)", id, r.Verdict, r.Reason)
		}
	}
}

func allScenarios(t *testing.T) []spec.Scenario {
	t.Helper()
	all, err := scenarios.All()
	if err != nil {
		t.Fatal(err)
	}
	return all
}
