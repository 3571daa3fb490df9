// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"testing"

	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/suite/spec"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

// start starts the proxier on a node, or skips the test where it cannot run.
func start(t testing.TB, node spec.Node) *instance {
	t.Helper()
	in := &instance{}
	in.Instance = proxiertest.Start(t, in.proxier(), node)
	t.Cleanup(func() { kill(in) })
	return in
}

// instance is the proxier on a node, with its mechanisms.
type instance struct {
	spec.Instance
	families []*family
}

// proxier returns the proxier, whose mechanisms become those of the instance.
func (in *instance) proxier() spec.Proxier {
	d := definition
	d.New = func(_ context.Context, site kit.Site) (kit.Mechanism, error) {
		f, err := newFamily(site)
		in.families = append(in.families, f)
		return f, err
	}
	return kit.New(d)
}

// kill ends an instance as SIGKILL ends a process: its sockets are closed, and its rules stay.
func kill(in spec.Instance) {
	_ = in.Kill(context.Background()) // closing sockets that are closed already is none's concern
}
