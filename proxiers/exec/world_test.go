// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"context"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/viplab/viplab/internal/leaktest"
	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/lab"
	labcluster "github.com/viplab/viplab/lab/cluster"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/suite/spec"
)

// patience is for the busiest machine; a slow one gets more. A verdict that takes it is one that never came.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" && os.Getenv("KUBECONFIG") != "" {
		os.Exit(runChild())
	}
	sandbox.Main(m)
}

// world is a small cluster.
type world struct {
	*labcluster.Cluster
	t *testing.T
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c, err := labcluster.New(t.Context(), lab.Topology{
		Nodes: []lab.NodeSpec{{Name: "n1"}, {Name: "n2"}}, Stack: lab.Dual, Overlay: lab.Direct,
	})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return &world{c, t}
}

// checkLeaks fails a test that leaves goroutines or descriptors behind. The first cluster opens those of the process.
func checkLeaks(t *testing.T) {
	t.Helper()
	c, err := labcluster.New(t.Context(), lab.Topology{
		Nodes: []lab.NodeSpec{{Name: "n1"}}, Stack: lab.Dual, Overlay: lab.Direct,
	})
	must(t, err)
	must(t, c.Close())
	leaktest.Check(t)
}

// node is what the engine hands to a proxier.
func (w *world) node(name string) spec.Node {
	n := w.Lab().Node(name)
	return spec.Node{
		Name: name, Host: n, Families: w.Lab().Stack().Families(), PodCIDRs: n.PodCIDRs(),
		ClusterCIDRs: w.Lab().ClusterCIDRs(),
		ServiceCIDRs: w.Store().ServiceCIDRs(), Store: w.Store(), StateDir: w.t.TempDir(),
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
}

// start places a command on a node.
func (w *world) start(name string, argv ...string) *instance {
	w.t.Helper()
	return w.place(name, Command{Name: "mine", Argv: argv})
}

func (w *world) place(name string, c Command) *instance {
	w.t.Helper()
	p, err := New(c)
	must(w.t, err)
	i, err := p.Start(w.t.Context(), w.node(name))
	must(w.t, err)
	return i.(*instance)
}

// apply applies the state as it is.
func (w *world) apply(ctx context.Context, i *instance) error {
	return i.Apply(ctx, w.Store().Snapshot())
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), machine.Limit(d))
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
