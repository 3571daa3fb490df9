// SPDX-License-Identifier: Apache-2.0

package netpol_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/viplab/viplab/internal/lab/trace"
	"github.com/viplab/viplab/internal/suite/netpol"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/proxiers"
	"github.com/viplab/viplab/proxiers/none"
	"github.com/viplab/viplab/suite/spec"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

func TestStaticCasesWithPackets(t *testing.T) {
	cases, err := netpol.Static()
	if err != nil {
		t.Fatal(err)
	}
	names, err := netpol.NamesOf(cases)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range proxiers.Enforcers() {
		t.Run(e.Name(), func(t *testing.T) {
			if err := e.Usable(t.Context()); err != nil {
				t.Skip(err)
			}
			b, err := netpol.NewBench(t.Context(), e, netpol.Options{Stack: lab.IPv4, PodNetwork: lab.Routed,
				Overlay: lab.VXLAN, NamedPorts: names})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := b.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}()
			var took []time.Duration
			for _, c := range cases {
				verdicts, err := b.Judge(t.Context(), c)
				if err != nil {
					t.Fatalf("%s: %v", c.ID, err)
				}
				for _, v := range verdicts {
					took = append(took, v.Took)
					if v.Verdict != spec.Pass {
						t.Errorf("%s %s: %s: %s", c.ID, v.Family, v.Verdict, v.Differences())
					}
				}
			}
			slices.Sort(took)
			t.Logf("%d tables: median %v, slowest %v", len(took), took[len(took)/2], took[len(took)-1])
		})
	}
}

// An enforcer that does nothing fails in every cell that must be blocked.
func TestAnEnforcerThatDoesNothingFails(t *testing.T) {
	cases, err := netpol.Static()
	if err != nil {
		t.Fatal(err)
	}
	names, err := netpol.NamesOf(cases)
	if err != nil {
		t.Fatal(err)
	}
	b, err := netpol.NewBench(t.Context(), none.New(), netpol.Options{Stack: lab.Dual, Overlay: lab.VXLAN,
		NamedPorts: names})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close(t.Context())
	for _, c := range cases[:20] {
		verdicts, err := b.Judge(t.Context(), c)
		if err != nil {
			t.Fatalf("%s: %v", c.ID, err)
		}
		if len(verdicts) != 2 {
			t.Errorf("%s: %d verdicts, want one for each family", c.ID, len(verdicts))
		}
		for _, v := range verdicts {
			want := spec.Fail
			if c.Blocked.Blocked() == 0 {
				want = spec.Pass
			}
			if v.Verdict != want || len(v.Wrong) != c.Blocked.Blocked() {
				t.Errorf("%s %s: %s with %d wrong cells, want %s with %d: %s", c.ID, v.Family, v.Verdict, len(v.Wrong), want,
					c.Blocked.Blocked(), v.Differences())
			}
			var shown strings.Builder
			if err := v.WriteDifferences(&shown); err != nil || strings.Count(shown.String(), ".") != c.Blocked.Blocked() {
				t.Errorf("%s %s: %v, the table of differences shows other cells:\n%s", c.ID, v.Family, err, shown.String())
			}
		}
	}
}

// A wrong cell is fired again and traced, and the page and the reader get the path of its packet.
func TestWrongCellsAreTraced(t *testing.T) {
	deny, err := netpol.Static()
	if err != nil {
		t.Fatal(err)
	}
	deny = slices.DeleteFunc(deny, func(c netpol.Case) bool { return c.Blocked.Blocked() < 200 })[:1]
	b, err := netpol.NewBench(t.Context(), none.New(), netpol.Options{Stack: lab.Dual, Overlay: lab.VXLAN,
		PodNetwork: lab.Routed})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close(t.Context())
	verdicts, err := b.Judge(t.Context(), deny[0])
	if err != nil {
		t.Fatal(err)
	}
	r := netpol.Result(verdicts, nil, nil)
	out := t.TempDir()
	if err := b.Trace(t.Context(), &r, verdicts, out, "case"); err != nil {
		t.Fatal(err)
	}
	traced := 0
	for _, p := range r.Probed {
		if p.Trace == "" {
			continue
		}
		traced++
		encoded, err := os.ReadFile(filepath.Join(out, p.Trace))
		if err != nil {
			t.Fatal(err)
		}
		all, err := trace.Parse(encoded)
		if err != nil || len(all) != 1 {
			t.Fatalf("%s: %d traces: %v", p.Row, len(all), err)
		}
		from, _, _ := strings.Cut(p.Row, ">")
		if x := all[0]; x.From != from || x.Outcome != "Reply" || len(x.Walk.Steps) == 0 || x.Reply == nil {
			t.Errorf("%s: the trace is from %s, has %d steps and ends with %s", p.Row, x.From, len(x.Walk.Steps), x.Outcome)
		}
		text, err := os.ReadFile(filepath.Join(out, strings.TrimSuffix(p.Trace, ".json")+".txt"))
		if err != nil || !strings.Contains(string(text), p.Row+", sent again: Reply by ") {
			t.Errorf("%s: %v, the text does not begin with what came back:\n%s", p.Row, err, text)
		}
	}
	if traced != 4 {
		t.Errorf("%d cells are traced, want 4 of %d", traced, len(r.Probed))
	}
}
