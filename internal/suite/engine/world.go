// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"net/netip"
	"os/exec"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/viplab/viplab/internal/lab/program"
	"github.com/viplab/viplab/internal/suite/expected"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// world is a running scenario. It implements spec.World: scope finds the objects and hosts that the scenario names,
// prober sends its probes, and record keeps their results.
type world struct {
	*scope
	*prober
	*record
	cell *Cell
}

// newWorld creates the scenario's namespace and its given objects, and waits until the pods run and the nodes have
// converged.
func newWorld(ctx context.Context, env *environment, c *Cell) (*world, error) {
	s := &scope{env: env, namespace: c.Scenario.ID, lastSeen: map[string]*corev1.Service{}}
	w := &world{scope: s, prober: newProber(s, c.failFast), record: &record{expected: expected.New(c.expected)}, cell: c}
	scene := Scene(c.Scenario)
	w.dropForeignIPs(scene)
	w.recordNamespaces(scene)
	for _, objects := range servicesLast(scene) {
		if err := env.Store().Apply(objects...); err != nil {
			return w, spec.HarnessErrorf("set the scene: %w", err)
		}
		if err := w.waitPods(ctx); err != nil {
			return w, err
		}
	}
	return w, w.Settle(ctx)
}

// servicesLast splits off the Services, which are created once the pods run. Otherwise a proxier would program each
// Service twice, without endpoints and with them.
func servicesLast(scene []store.Object) [2][]store.Object {
	var out [2][]store.Object
	for _, o := range scene {
		i := 0
		if _, ok := o.(*corev1.Service); ok {
			i = 1
		}
		out[i] = append(out[i], o)
	}
	return out
}

// Scene returns the objects that a scenario begins with: its namespace and its given objects.
func Scene(s spec.Scenario) []store.Object {
	objects := []store.Object{&corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: s.ID},
	}}
	for _, o := range s.Given {
		objects = append(objects, adopt(o, s.ID))
	}
	return objects
}

// adopt returns a copy of an object with a scenario's defaults: its namespace, and all families of the cluster.
func adopt(o store.Object, namespace string) store.Object {
	o = o.(runtime.Object).DeepCopyObject().(store.Object)
	if r := store.ResourceOf(o); o.GetNamespace() == "" && r != nil && r.Namespaced {
		o.SetNamespace(namespace)
	}
	s, ok := o.(*corev1.Service)
	if ok && s.Spec.IPFamilyPolicy == nil && s.Spec.Type != corev1.ServiceTypeExternalName {
		s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyPreferDualStack)
	}
	return o
}

// dropForeignIPs removes external IPs of families that the cluster does not have from Services. The API allows them,
// but in some proxiers one such Service breaks the external IPs of all others, and so of other scenarios.
func (s *scope) dropForeignIPs(objects []store.Object) {
	families := s.Lab().Stack().Families()
	for _, o := range objects {
		if svc, ok := o.(*corev1.Service); ok {
			svc.Spec.ExternalIPs = slices.DeleteFunc(svc.Spec.ExternalIPs, func(ip string) bool {
				a, err := netip.ParseAddr(ip)
				return err == nil && !slices.Contains(families, lab.FamilyOf(a))
			})
		}
	}
}

// close closes the scenario's sockets and deletes its namespaces, unless keep is set.
func (w *world) close(keep bool) error {
	errs := []error{w.prober.close()}
	for _, s := range w.servers {
		errs = append(errs, s.Close())
	}
	if !keep {
		for _, ns := range w.namespaces() {
			if err := w.Store().Delete(store.KindNamespace, "", ns); !apierrors.IsNotFound(err) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

func (w *world) Apply(objs ...store.Object) error {
	adopted := make([]store.Object, len(objs))
	for i, o := range objs {
		adopted[i] = adopt(o, w.namespace)
	}
	w.dropForeignIPs(adopted)
	w.recordNamespaces(adopted)
	return w.Store().Apply(adopted...)
}

func (w *world) Serve(host, proto string, port uint16) error {
	h, err := w.Host(host)
	if err != nil {
		return err
	}
	s, err := traffic.Serve(h.NS, host, nil, traffic.Port{Proto: proto, Number: port})
	if err != nil {
		return spec.HarnessErrorf("serve on %s: %w", host, err)
	}
	w.scope.mu.Lock()
	defer w.scope.mu.Unlock()
	w.servers = append(w.servers, s)
	return nil
}

func (w *world) Capture(hosts ...string) (captures []*observe.Capture, err error) {
	defer func() {
		w.record.mu.Lock()
		defer w.record.mu.Unlock()
		w.record.captured = captures
	}()
	for _, name := range hosts {
		h, err := w.Host(name)
		if err != nil {
			return captures, err
		}
		c, err := observe.StartCapture(h.NS)
		if err != nil {
			return captures, spec.HarnessErrorf("%w", err)
		}
		captures = append(captures, c)
	}
	return captures, nil
}

func (w *world) Run(ctx context.Context, host string, argv ...string) (string, error) {
	h, err := w.Host(host)
	if err != nil {
		return "", err
	}
	run := h.Run
	if w.Lab().Pod(w.podName(host)) != nil {
		namespace, name, _ := strings.Cut(w.podName(host), "/")
		run = func(cmd *exec.Cmd) error { return w.env.Run(namespace, name, cmd) }
	}
	text, err := program.Output(exec.CommandContext(ctx, argv[0], argv[1:]...), run)
	if err != nil {
		return "", spec.HarnessErrorf("%s: %s: %w", host, strings.Join(argv, " "), err)
	}
	return text, nil
}
