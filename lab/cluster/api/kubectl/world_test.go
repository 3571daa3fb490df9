// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster"
	"github.com/viplab/viplab/lab/cluster/api"
)

// patience bounds a whole test, on the slowest machine.
const patience = 10 * time.Minute

// world is a cluster with a person at a kubectl: on the node n1, where the API listens.
type world struct {
	*testing.T
	ctx     context.Context
	cluster *cluster.Cluster
	server  *api.Server
	env     []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	c, err := cluster.New(ctx, lab.Topology{Nodes: []lab.NodeSpec{{Name: "n1"}, {Name: "n2"}}})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, ctx: ctx, cluster: c, server: api.New(c.Store())}
	w.server.SetContainers(programs{})
	t.Cleanup(func() {
		if err := errors.Join(w.server.Close(), c.Close()); err != nil {
			t.Error(err)
		}
	})
	endpoint, err := w.server.Serve(ctx, c.Lab().Node("n1").NS, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir() // kubectl keeps what it has discovered there
	config := filepath.Join(home, "kubeconfig")
	if err := os.WriteFile(config, endpoint.Kubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	w.env = []string{"HOME=" + home, "KUBECONFIG=" + config}
	return w
}

// command returns a kubectl that has not been started. It ends with the test.
func (w *world) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(w.ctx, program, args...)
	cmd.Env = w.env
	return cmd
}

// try runs kubectl and returns what it wrote, errors included.
func (w *world) try(args ...string) (string, error) {
	var out bytes.Buffer
	cmd := w.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := w.cluster.Lab().Node("n1").NS.Run(cmd)
	return out.String(), err
}

// run runs kubectl, which must succeed.
func (w *world) run(args ...string) string {
	w.Helper()
	out, err := w.try(args...)
	if err != nil {
		w.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// says runs kubectl and compares its lines with patterns: fields that must be so, "*" for any.
func (w *world) says(command string, lines ...string) {
	w.Helper()
	out := w.run(strings.Fields(command)...)
	if err := matchLines(out, lines); err != nil {
		w.Errorf("kubectl %s: %v\n%s", command, err, out)
	}
}

// contains runs kubectl and looks for lines in what it says, in this order.
func (w *world) contains(command string, lines ...string) {
	w.Helper()
	out := w.run(strings.Fields(command)...)
	rest := strings.Split(out, "\n")
	for _, want := range lines {
		for len(rest) > 0 && !matches(rest[0], want) {
			rest = rest[1:]
		}
		if len(rest) == 0 {
			w.Errorf("kubectl %s: no line %q, or not in this order\n%s", command, want, out)
			return
		}
		rest = rest[1:]
	}
}

func matchLines(out string, want []string) error {
	got := strings.Split(strings.TrimSpace(out), "\n")
	if len(got) != len(want) {
		return fmt.Errorf("%d lines, want %d", len(got), len(want))
	}
	for i := range want {
		if !matches(got[i], want[i]) {
			return fmt.Errorf("line %d: want %s", i+1, want[i])
		}
	}
	return nil
}

// matches compares a line with a pattern word by word. "*" is any word, "x*" one that begins with x, and "..." at the
// end the rest.
func matches(line, pattern string) bool {
	words := strings.Fields(line)
	for _, p := range strings.Fields(pattern) {
		if p == "..." {
			return true
		}
		if len(words) == 0 {
			return false
		}
		prefix, open := strings.CutSuffix(p, "*")
		if words[0] != p && (!open || !strings.HasPrefix(words[0], prefix)) {
			return false
		}
		words = words[1:]
	}
	return len(words) == 0
}
