// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"testing"

	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/suite/spec"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

// start starts the proxier on a node, or skips the test where it cannot run.
func start(t testing.TB, node spec.Node) *instance {
	t.Helper()
	in := proxiertest.Start(t, New(), node).(*instance)
	t.Cleanup(func() { kill(in) })
	return in
}

// kill does to an instance what SIGKILL does to a process: its sockets are closed, and its rules stay.
func kill(in *instance) {
	_ = in.Kill(context.Background()) // closing sockets that are closed already is none's concern
}
