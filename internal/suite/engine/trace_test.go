// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/viplab/viplab/internal/lab/trace"
	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/proxiers/none"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/expect"
	"github.com/viplab/viplab/suite/spec"
)

// refusing is a proxier whose rules refuse TCP connections to a port and drop datagrams to it.
type refusing struct {
	spec.Proxier
	port uint16
}

func (r refusing) Name() string { return "refusing" }

func (r refusing) Start(_ context.Context, node spec.Node) (spec.Instance, error) {
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`table inet broken {
		chain guard { type filter hook forward priority 0;
			tcp dport %[1]d reject with tcp reset
			udp dport %[1]d drop
		}
		chain local { type filter hook input priority 0;
			tcp dport %[1]d reject with tcp reset
		}
	}`, r.port))
	if out, err := runOutput(node, cmd); err != nil {
		return nil, fmt.Errorf("nft: %w: %s", err, out)
	}
	return r.Proxier.Start(context.Background(), node)
}

func runOutput(node spec.Node, cmd *exec.Cmd) (string, error) {
	var b strings.Builder
	cmd.Stdout, cmd.Stderr = &b, &b
	err := node.Host.Run(cmd)
	return b.String(), err
}

// traceOf reads the trace of a row.
func traceOf(t *testing.T, out string, p spec.Probed) *trace.Traced {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(out, p.Trace))
	if err != nil {
		t.Fatalf("%s: %v", p.Probe, err)
	}
	var r trace.Traced
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatalf("%s: %v", p.Trace, err)
	}
	return &r
}

// alien returns an address of a trace that is neither the source nor the destination.
func alien(r *trace.Traced) netip.Addr {
	for _, w := range r.Walks() {
		for _, s := range w.Steps {
			for _, a := range []netip.AddrPort{s.Before.Src, s.Before.Dst} {
				if a != r.Source && a != r.Address {
					return a.Addr()
				}
			}
		}
	}
	return netip.Addr{}
}

// A scenario fails while another one in the same cluster sends from the same node. The traces name the rule, hold no
// packet of the other scenario, and leave nothing on the nodes.
func TestAFailedRowIsTraced(t *testing.T) {
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip(err)
	}
	began := make(chan struct{})
	fails := simple("traced-fails")
	fails.Given = append(fails.Given, Backend("a3", "n3"))
	fails.Steps = []spec.Step{{
		Do: []spec.Action{{Name: "wait for the other scenario", Run: func(ctx context.Context, _ spec.World) error {
			select {
			case <-began:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}},
		Rows: []spec.Row{
			{From: "client", To: spec.HostAt("n2", 8080), Servers: []string{"n2"}},
			{From: "c1", To: spec.HostAt("a2", 8080), Proto: "udp", Servers: []string{"a2"}},
			{From: "n1", To: spec.HostAt("a3", 8080), Servers: []string{"a3"}},
			{From: "c1", To: spec.HostAt("a2", 9), Want: spec.Refused},
		},
	}}
	noisy := simple("traced-beside")
	noisy.Given = []store.Object{Pod("b2", "n2", TCP(7000), UDP(7000))}
	noisy.Steps = []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
		to := spec.HostAt("b2", 7000)
		rows := []spec.Row{
			{From: "n1", To: to, Servers: []string{"b2"}},
			{From: "n1", To: to, Proto: "udp", Servers: []string{"b2"}},
		}
		err := w.During(ctx, rows, func(ctx context.Context, traffic spec.Traffic) error {
			close(began)
			return observe.Await(ctx, nil, func(ctx context.Context) error {
				for _, ns := range w.Store().Snapshot().Namespaces {
					if ns.Name == fails.ID {
						return fmt.Errorf("%s still runs", ns.Name)
					}
				}
				return nil
			})
		})
		for _, node := range []string{"n1", "n2", "n3"} {
			tables := spec.Must(w.Run(ctx, node, "nft", "list", "tables"))
			if strings.Contains(tables, "viplab-trace") {
				return fmt.Errorf("%s: the trace has left %s", node, tables)
			}
		}
		return err
	}}}
	out := t.TempDir()
	results := run(t, engine.Options{
		Proxiers: []spec.Proxier{refusing{none.New(), 8080}}, Scenarios: []spec.Scenario{fails, noisy}, Stack: lab.Dual,
		Out: out, FailFast: true,
	})
	if r := results[noisy.ID]; r.Verdict != spec.Pass {
		t.Errorf("%s: %s: %s", r.Scenario.ID, r.Verdict, r.Reason)
	}
	r := results[fails.ID]
	traced := 0
	for _, p := range r.Probed {
		if p.Trace == "" {
			if !p.Holds {
				t.Errorf("%s fails without a trace", p.Probe)
			}
			continue
		}
		traced++
		x := traceOf(t, out, p)
		want := "reject with tcp reset"
		if strings.Contains(p.Probe, "udp") {
			want = "drop"
		}
		if end := x.Walk.End; end == nil || !strings.Contains(x.Walk.Steps[end.Step].Rule, want) {
			t.Errorf("%s: the trace ends with %+v, want a rule with %q", p.Probe, end, want)
		}
		if a := alien(x); a.IsValid() {
			t.Errorf("%s: the trace has a packet with the address %s", p.Probe, a)
		}
		text := strings.TrimSuffix(p.Trace, "json") + "txt"
		if !slices.Contains(r.Files, text) || !slices.Contains(r.Files, p.Trace) {
			t.Errorf("the result does not name %s: %s", text, r.Files)
		}
	}
	if want := 6; traced != want { // three rows in two families
		t.Errorf("%d rows have traces, want %d: %s", traced, want, r.Reason)
	}
	const first, other = "of nftables, table inet broken, chain local, has refused it",
		"\"tcp dport 8080 reject with tcp reset\" of nftables, table inet broken, chain guard, has refused it"
	if !strings.Contains(r.Reason, first) || !strings.Contains(r.Reason, "and 5 more traces") {
		t.Errorf("the account of the failure does not name the rule:\n%s", r.Reason)
	}
	if whole := wholeAccount(t, out, r); !strings.Contains(whole, first) || !strings.Contains(whole, other) {
		t.Errorf("failure.txt does not name the rules:\n%s", whole)
	}
}

// wholeAccount returns the account of a failure with all rows and traces.
func wholeAccount(t *testing.T, out string, r spec.Result) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(out, r.Scenario.ID, r.Proxier, "failure.txt"))
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

// A row that fails only during a change is traced when it holds again.
func TestAFailureThatDoesNotLastIsNamed(t *testing.T) {
	s := simple("traced-once")
	rows := s.Steps[0].Rows
	s.Steps = []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
		return w.During(ctx, rows, func(ctx context.Context, traffic spec.Traffic) error {
			spec.Must(w.Run(ctx, "n2", "nft", `table inet once { chain c {
				type filter hook forward priority 0;
				tcp dport 8080 reject with tcp reset; }; }`))
			err := traffic.Rounds(ctx, 2)
			spec.Must(w.Run(ctx, "n2", "nft", "delete table inet once"))
			return err
		})
	}}}
	r := run(t, engine.Options{Proxiers: []spec.Proxier{none.New()}, Scenarios: []spec.Scenario{s},
		Out: t.TempDir()})[s.ID]
	if want := "the repeated probe was answered (Reply by a2, "; !strings.Contains(r.Reason, want) ||
		!strings.Contains(r.Reason, "the failure did not last") {
		t.Errorf("%s: the account lacks %q:\n%s", r.Verdict, want, r.Reason)
	}
}

// Known failures are not traced, and of many failures only the first ones.
func TestTracesAreLimited(t *testing.T) {
	s := simple("traced-often")
	s.Steps[0].Rows = nil
	for port := range uint16(10) {
		s.Steps[0].Rows = append(s.Steps[0].Rows,
			spec.Row{From: "c1", To: spec.HostAt("a2", 9000+port), Servers: []string{"a2"}})
	}
	file, err := expect.Parse("known.yaml", []byte("proxier: none\nexpect:\n- {scenario: traced-often, "+
		"issue: https://example.com/1, reason: it is so, rows: ['"+s.Steps[0].Rows[0].Label("")+"']}\n"))
	if err != nil {
		t.Fatal(err)
	}
	known, err := file.For(expect.Run{}, []string{s.ID})
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	r := run(t, engine.Options{Proxiers: []spec.Proxier{none.New()}, Scenarios: []spec.Scenario{s}, Out: out,
		Expect: map[string]*expect.Known{"none": known}})[s.ID]
	var traced []bool
	for _, p := range r.Probed {
		traced = append(traced, p.Trace != "")
	}
	want := []bool{false, true, true, true, true, true, true, true, true, false}
	if !slices.Equal(traced, want) || !strings.Contains(wholeAccount(t, out, r), "1 failed rows are not traced") {
		t.Errorf("traces of rows %v, want %v: %s", traced, want, r.Reason)
	}
}
