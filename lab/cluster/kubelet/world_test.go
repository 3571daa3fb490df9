// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/lab/nstest"
	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster"
	"github.com/viplab/viplab/lab/cluster/access"
	"github.com/viplab/viplab/lab/cluster/kubelet"
	"github.com/viplab/viplab/lab/cluster/manifest"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

// world is a cluster of one node whose pods run programs.
type world struct {
	*testing.T
	*cluster.Cluster
	ctx context.Context
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOf(t, nil)
}

// newWorldOf returns a world with images beside the built-in ones.
func newWorldOf(t *testing.T, images kubelet.Images) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), machine.Limit(time.Minute))
	t.Cleanup(cancel)
	c, err := cluster.New(ctx, lab.Topology{Nodes: []lab.NodeSpec{{Name: "n1"}}},
		cluster.RunPrograms(kubelet.Builtin().With(images)))
	nstest.Must(t, err)
	t.Cleanup(func() { nstest.Must(t, c.Close()) })
	return &world{T: t, Cluster: c, ctx: ctx}
}

// apply applies a manifest, with pods on the node n1.
func (w *world) apply(text string) {
	w.Helper()
	objects, err := manifest.Decode("test", []byte(text))
	nstest.Must(w.T, err)
	for _, o := range objects {
		if p, ok := o.(*corev1.Pod); ok {
			p.Spec.NodeName = "n1"
		}
	}
	nstest.Must(w.T, w.Store().Apply(objects...))
}

// pod applies a pod that is named after the test; spec is YAML.
func (w *world) pod(name, spec string) {
	w.Helper()
	w.apply(fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, labels: {app: %s}}\nspec: %s\n", name, name,
		strings.ReplaceAll(spec, "\t", " ")))
}

// await returns a pod's state as soon as it is as wanted.
func (w *world) await(name, what string, wanted func(*corev1.Pod) bool) *corev1.Pod {
	w.Helper()
	for {
		revision := w.Store().Snapshot().Revision
		p, ok := store.Get[*corev1.Pod](w.Store(), "default", name)
		if ok && wanted(p) {
			return p
		}
		select {
		case <-w.Store().Changed(revision):
		case <-w.ctx.Done():
			if p != nil {
				w.Fatalf("%s is never %s: %+v", name, what, p.Status)
			}
			w.Fatalf("%s is never %s: it does not exist", name, what)
		}
	}
}

func (w *world) awaitReady(name string) *corev1.Pod {
	w.Helper()
	return w.await(name, "ready", func(p *corev1.Pod) bool { return condition(p, corev1.PodReady) })
}

func condition(p *corev1.Pod, t corev1.PodConditionType) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == t {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func (w *world) awaitPhase(name string, phase corev1.PodPhase) *corev1.Pod {
	w.Helper()
	return w.await(name, string(phase), func(p *corev1.Pod) bool { return p.Status.Phase == phase })
}

func key(name string) store.Key { return store.Key{Namespace: "default", Name: name} }

// logs returns what a container has printed.
func (w *world) logs(name, container string, o corev1.PodLogOptions) string {
	w.Helper()
	var b bytes.Buffer
	nstest.Must(w.T, w.Containers().Logs(w.ctx, key(name), container, &o, &b))
	return strings.TrimSpace(b.String())
}

// exec runs a shell script in a container.
func (w *world) exec(name, container, script string) (string, error) {
	var b bytes.Buffer
	err := w.Containers().Exec(w.ctx, key(name), container, []string{"sh", "-c", script},
		access.Streams{Out: &b, Err: &b})
	return strings.TrimSpace(b.String()), err
}

// run runs a shell script as a pod to its end and returns what it has printed.
func (w *world) run(name, script, more string) string {
	w.Helper()
	w.pod(name, fmt.Sprintf("{restartPolicy: Never, containers: [{name: c, image: busybox, command: [sh, -c, %q] %s}]}", script, more))
	w.await(name, "over", func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	})
	return w.logs(name, "", corev1.PodLogOptions{})
}
