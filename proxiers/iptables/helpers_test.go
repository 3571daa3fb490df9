package iptables

import (
	"testing"

	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/suite/spec"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

var backends = []Backend{NFT, Legacy}

// start starts a proxier on a node, or skips the test where it cannot run.
func start(t testing.TB, b Backend, node spec.Node) *instance {
	t.Helper()
	p := New(b)
	if err := p.Usable(t.Context()); err != nil {
		t.Skip(err)
	}
	in, err := p.Start(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	return in.(*instance)
}
