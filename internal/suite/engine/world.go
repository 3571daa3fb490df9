// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// world is one scenario's part of a cluster. It implements spec.World.
type world struct {
	env       *environment
	cell      *Cell
	namespace string
	stepName  string // of the step that is played

	mu       sync.Mutex
	kept     map[string]*keptConn       // by Row.Conn and family
	former   map[string]*corev1.Service // as they were when their addresses were last asked for
	servers  []*traffic.Server          // on hosts that are not pods
	others   []string                   // further namespaces that the scenario has made
	read     uint64                     // the cluster's newest revision that was looked at
	concerns uint64                     // the newest one up to that which the scenario has to do with
	failures []failedRows               // what did not hold, for the account of a failure
	probed   []spec.Probed              // every row that was judged
	remarks  []string                   // what is told with the verdict of a pass
}

// keptConn is a connection that stays open between rows.
type keptConn struct {
	conn  *traffic.Conn
	first string // the server that answered first
}

// newWorld makes the scenario's namespace and everything that is given in it, and returns when all of it runs.
func newWorld(ctx context.Context, env *environment, c *Cell) (*world, error) {
	w := &world{env: env, cell: c, namespace: c.Scenario.ID, kept: map[string]*keptConn{},
		former: map[string]*corev1.Service{}}
	scene := Scene(c.Scenario)
	w.fit(scene)
	w.take(scene)
	for _, objects := range inTurn(scene) {
		if err := env.Store().Apply(objects...); err != nil {
			return w, spec.HarnessErrorf("set the scene: %w", err)
		}
		if err := w.waitPods(ctx); err != nil {
			return w, err
		}
	}
	return w, w.Settle(ctx)
}

// inTurn keeps Services back until the pods run: a proxier would otherwise have to program each one twice, without
// endpoints and with them.
func inTurn(scene []store.Object) [][]store.Object {
	var before, services []store.Object
	for _, o := range scene {
		if _, ok := o.(*corev1.Service); ok {
			services = append(services, o)
		} else {
			before = append(before, o)
		}
	}
	return [][]store.Object{before, services}
}

// Scene are the objects that a scenario begins with: its namespace, and in it everything that is given.
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

// adopt is a copy of an object for a scenario: in its namespace, and in every family of the cluster unless it says
// otherwise.
func adopt(o store.Object, namespace string) store.Object {
	o = o.(runtime.Object).DeepCopyObject().(store.Object)
	if r := store.ResourceOf(o); o.GetNamespace() == "" && r != nil && r.Namespaced {
		o.SetNamespace(namespace)
	}
	if s, ok := o.(*corev1.Service); ok && s.Spec.IPFamilyPolicy == nil && s.Spec.Type != corev1.ServiceTypeExternalName {
		policy := corev1.IPFamilyPolicyPreferDualStack
		s.Spec.IPFamilyPolicy = &policy
	}
	return o
}

// fit takes external IPs of families that the cluster does not have from Services. The API allows them, but there are
// proxiers that one such Service keeps from serving the external IPs of all others, in scenarios that have nothing to
// do with it.
func (w *world) fit(objects []store.Object) {
	families := w.Lab().Stack().Families()
	for _, o := range objects {
		if s, ok := o.(*corev1.Service); ok {
			s.Spec.ExternalIPs = slices.DeleteFunc(s.Spec.ExternalIPs, func(ip string) bool {
				a, err := netip.ParseAddr(ip)
				return err == nil && !slices.Contains(families, lab.FamilyOf(a))
			})
		}
	}
}

// leave closes what the scenario left open and deletes its namespaces, unless they are to be kept.
func (w *world) leave(keep bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for _, k := range w.kept {
		errs = append(errs, k.conn.Close())
	}
	clear(w.kept)
	for _, s := range w.servers {
		errs = append(errs, s.Close())
	}
	if !keep {
		for _, ns := range w.namespacesLocked() {
			if err := w.env.Store().Delete(store.KindNamespace, "", ns); !apierrors.IsNotFound(err) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// take makes namespaces among the objects the scenario's own.
func (w *world) take(objects []store.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range objects {
		if ns, ok := o.(*corev1.Namespace); ok && !slices.Contains(w.namespacesLocked(), ns.Name) {
			w.others = append(w.others, ns.Name)
		}
	}
}

// namespaces are all namespaces of the scenario, the first one first.
func (w *world) namespaces() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.namespacesLocked()
}

func (w *world) namespacesLocked() []string { return append([]string{w.namespace}, w.others...) }

// podName is the lab's name of a pod, which the scenario calls by its name alone if it is in the first namespace.
func (w *world) podName(name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	return w.namespace + "/" + name
}

func (w *world) Lab() *lab.Lab             { return w.env.Lab() }
func (w *world) Store() *store.Store       { return w.env.Store() }
func (w *world) Namespace() string         { return w.namespace }
func (w *world) Features() spec.FeatureSet { return w.env.declared }

func (w *world) Apply(objs ...store.Object) error {
	adopted := make([]store.Object, len(objs))
	for i, o := range objs {
		adopted[i] = adopt(o, w.namespace)
	}
	w.fit(adopted)
	w.take(adopted)
	return w.env.Store().Apply(adopted...)
}

func (w *world) Host(name string) (*lab.Host, error) {
	l := w.Lab()
	if n := l.Node(name); n != nil {
		return &n.Host, nil
	}
	if p := l.Pod(w.podName(name)); p != nil {
		return &p.Host, nil
	}
	switch name {
	case "client":
		return l.Client(), nil
	case "router":
		return l.Router(), nil
	}
	return nil, spec.HarnessErrorf("there is no host %q: neither a node, nor a pod of this scenario, nor client or router", name)
}

func (w *world) Server(pod string) (*traffic.Server, error) {
	namespace, name, _ := strings.Cut(w.podName(pod), "/")
	if s := w.env.Server(namespace, name); s != nil {
		return s, nil
	}
	return nil, spec.HarnessErrorf("pod %q serves nothing", pod)
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
	w.mu.Lock()
	defer w.mu.Unlock()
	w.servers = append(w.servers, s)
	return nil
}

func (w *world) Flows(ctx context.Context, node string, keep func(observe.Flow) bool) ([]observe.Flow, error) {
	ct := w.env.conntrack[node]
	if ct == nil {
		return nil, spec.HarnessErrorf("%q is not a node", node)
	}
	flows, err := ct.Flows(ctx, keep)
	if err != nil {
		return nil, &spec.HarnessError{Err: err}
	}
	return flows, nil
}

func (w *world) Flow(node, proto string, orig observe.Tuple) (observe.Flow, bool, error) {
	ct := w.env.conntrack[node]
	if ct == nil {
		return observe.Flow{}, false, spec.HarnessErrorf("%q is not a node", node)
	}
	flow, ok, err := ct.Flow(proto, orig)
	if err != nil {
		return observe.Flow{}, false, &spec.HarnessError{Err: err}
	}
	return flow, ok, nil
}

func (w *world) Run(ctx context.Context, host string, argv ...string) (string, error) {
	h, err := w.Host(host)
	if err != nil {
		return "", err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	run := h.Run
	if w.Lab().Pod(w.podName(host)) != nil {
		namespace, name, _ := strings.Cut(w.podName(host), "/")
		run = func(cmd *exec.Cmd) error { return w.env.Run(namespace, name, cmd) }
	}
	if err := run(cmd); err != nil {
		return "", spec.HarnessErrorf("%s: %s: %w: %s", host, strings.Join(argv, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// shortName is a host's name as the scenario in the namespace knows it: its own pods without their namespace.
func shortName(namespace, name string) string { return strings.TrimPrefix(name, namespace+"/") }
