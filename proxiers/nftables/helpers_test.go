package nftables

import (
	"context"
	"strings"
	"testing"

	"github.com/viplab/viplab/lab/kube"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/suite/spec"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

// start starts the proxier on a node, or skips the test where it cannot run.
func start(t testing.TB, node spec.Node) *instance {
	t.Helper()
	if err := New().Usable(t.Context()); err != nil {
		t.Skip(err)
	}
	in, err := newInstance(node)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

type failer interface {
	Fatal(...any)
	Fatalf(string, ...any)
	Context() context.Context
}

func apply(t failer, in *instance, s *kube.Snapshot) {
	if err := in.Apply(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

func stop(t failer, in *instance) {
	if err := in.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// kernelRules is what the kernel holds: all tables of the namespace, as nft lists them, with sets, maps and chains in the
// order of their names, and the elements of each in order.
func kernelRules(t failer, in *instance) string {
	var all []string
	for _, f := range in.families {
		text, err := f.table.text(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, canonical(string(text)))
	}
	return strings.Join(all, "")
}
