// SPDX-License-Identifier: Apache-2.0

package proxiertest

import (
	"context"
	"flag"
	"testing"

	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/suite/spec"
)

// Failer is a test, a benchmark, or a random check.
type Failer interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
	Context() context.Context
}

// Start starts a proxier on a node, or skips the test where it cannot run.
func Start(t testing.TB, p spec.Proxier, node spec.Node) spec.Instance {
	t.Helper()
	if err := p.Usable(t.Context()); err != nil {
		t.Skip(err)
	}
	in, err := p.Start(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// Apply gives an instance a state, which it has to take.
func Apply(t Failer, in spec.Instance, s *store.Snapshot) {
	t.Helper()
	if err := in.Apply(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// Stop stops an instance, which has to leave in peace.
func Stop(t Failer, in spec.Instance) {
	t.Helper()
	if err := in.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Again gives an instance the state that it has, as a new one. It has to do without programs, which would not start.
func Again(t testing.TB, in spec.Instance, s *store.Snapshot) {
	t.Helper()
	again := *s
	again.Revision++
	Idle(t, in, &again)
}

// Idle gives an instance a state for which it needs no program: none would start.
func Idle(t testing.TB, in spec.Instance, s *store.Snapshot) {
	t.Helper()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := in.Apply(canceled, s); err != nil {
		t.Error(err)
	}
}

// FewerChecks lowers the number of random checks in a test: each takes seconds, as it runs programs.
func FewerChecks(t testing.TB, n string) {
	t.Helper()
	old := flag.Lookup("rapid.checks").Value.String()
	if err := flag.Set("rapid.checks", n); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = flag.Set("rapid.checks", old) })
}
