// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"testing"

	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/suite/spec"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

var backends = []Backend{NFT, Legacy}

func eachBackend(t *testing.T, run func(*testing.T, Backend)) {
	for _, b := range backends {
		t.Run(string(b), func(t *testing.T) { run(t, b) })
	}
}

// instance is the proxier on a node, with its mechanisms.
type instance struct {
	spec.Instance
	families []*family
	node     spec.Node
}

// start starts a proxier on a node, or skips the test where it cannot run.
func start(t testing.TB, b Backend, node spec.Node) *instance {
	t.Helper()
	in := &instance{node: node}
	d := definition(b)
	d.New = func(_ context.Context, site kit.Site) (kit.Mechanism, error) {
		f, err := newFamily(site, b)
		in.families = append(in.families, f)
		return f, err
	}
	in.Instance = proxiertest.Start(t, kit.New(d), node)
	return in
}
