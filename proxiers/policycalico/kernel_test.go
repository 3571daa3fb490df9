// SPDX-License-Identifier: Apache-2.0

package policycalico

import (
	"testing"

	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/suite/spec"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

func TestTraffic(t *testing.T) { proxiertest.PolicyTraffic(t, New(), lab.Routed) }

// onNode is the IPv4 family of an enforcer on a node, or the end of a test where it cannot run.
func onNode(t *testing.T, node spec.Node) *family {
	t.Helper()
	if err := New().Usable(t.Context()); err != nil {
		t.Skip(err)
	}
	f, err := newFamily(node.Host.NS, node.StateDir, lab.V4, node.Log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Release)
	return f
}
