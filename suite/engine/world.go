package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
	"github.com/viplab/viplab/lab/kube"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/lab/watch"
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
	w := &world{env: env, cell: c, namespace: c.Scenario.ID, kept: map[string]*keptConn{}, former: map[string]*corev1.Service{}}
	scene := Scene(c.Scenario)
	w.take(scene)
	if err := env.Store().Apply(scene...); err != nil {
		return w, spec.Faultf("set the scene: %w", err)
	}
	return w, w.Settle(ctx)
}

// Scene are the objects that a scenario begins with: its namespace, and in it everything that is given.
func Scene(s spec.Scenario) []kube.Object {
	objects := []kube.Object{&corev1.Namespace{
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
func adopt(o kube.Object, namespace string) kube.Object {
	o = o.(runtime.Object).DeepCopyObject().(kube.Object)
	if r := kube.ResourceOf(o); o.GetNamespace() == "" && r != nil && r.Namespaced {
		o.SetNamespace(namespace)
	}
	if s, ok := o.(*corev1.Service); ok && s.Spec.IPFamilyPolicy == nil && s.Spec.Type != corev1.ServiceTypeExternalName {
		policy := corev1.IPFamilyPolicyPreferDualStack
		s.Spec.IPFamilyPolicy = &policy
	}
	return o
}

// leave closes what the scenario left open and deletes its namespace, unless it is to be kept.
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
			if err := w.env.Store().Delete(kube.KindNamespace, "", ns); !apierrors.IsNotFound(err) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// take makes namespaces among the objects the scenario's own.
func (w *world) take(objects []kube.Object) {
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
func (w *world) Kube() *kube.Store         { return w.env.Store() }
func (w *world) Namespace() string         { return w.namespace }
func (w *world) Features() spec.FeatureSet { return w.env.features() }

func (w *world) Apply(objs ...kube.Object) error {
	adopted := make([]kube.Object, len(objs))
	for i, o := range objs {
		adopted[i] = adopt(o, w.namespace)
	}
	w.take(adopted)
	return w.env.Store().Apply(adopted...)
}

func (w *world) Settle(ctx context.Context) error {
	for _, ns := range w.namespaces() {
		if err := w.env.WaitPods(ctx, ns); err != nil {
			return spec.Faultf("wait for the pods: %w", err)
		}
	}
	return w.env.settle(ctx)
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
	return nil, spec.Faultf("there is no host %q: neither a node, nor a pod of this scenario, nor client or router", name)
}

func (w *world) Server(pod string) (*traffic.Server, error) {
	namespace, name, _ := strings.Cut(w.podName(pod), "/")
	if s := w.env.Server(namespace, name); s != nil {
		return s, nil
	}
	return nil, spec.Faultf("pod %q serves nothing", pod)
}

func (w *world) Serve(host, proto string, port uint16) error {
	h, err := w.Host(host)
	if err != nil {
		return err
	}
	s, err := traffic.Serve(h.NS, host, nil, traffic.Port{Proto: proto, Number: port})
	if err != nil {
		return spec.Faultf("serve on %s: %w", host, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.servers = append(w.servers, s)
	return nil
}

func (w *world) Flows(ctx context.Context, node string, keep func(watch.Flow) bool) ([]watch.Flow, error) {
	ct := w.env.conntrack[node]
	if ct == nil {
		return nil, spec.Faultf("%q is not a node", node)
	}
	flows, err := ct.Flows(ctx, keep)
	if err != nil {
		return nil, &spec.Fault{Err: err}
	}
	return flows, nil
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
		return "", spec.Faultf("%s: %s: %w: %s", host, strings.Join(argv, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// Resolve turns a target into an address of the family. A Service that has been deleted keeps its addresses here.
func (w *world) Resolve(to spec.Target, family lab.Family, proto string) (netip.AddrPort, error) {
	addr, err := w.address(to, family)
	port := to.Port
	if err == nil && (to.Kind == spec.VIP && !to.RawPort || to.Kind == spec.NodePortOf) {
		var p corev1.ServicePort
		p, err = w.servicePort(to, proto)
		if to.Kind == spec.NodePortOf {
			port = uint16(p.NodePort)
		}
	}
	switch {
	case err != nil:
		return netip.AddrPort{}, spec.Faultf("resolve %s: %w", to, err)
	case port == 0:
		return netip.AddrPort{}, spec.Faultf("resolve %s: it has no port", to)
	}
	return netip.AddrPortFrom(addr, port), nil
}

// address is a target without its port.
func (w *world) address(to spec.Target, family lab.Family) (addr netip.Addr, err error) {
	switch to.Kind {
	case spec.VIP:
		addr, err = w.clusterIP(to.Service, family)
	case spec.Ingress:
		addr, err = w.ingress(to.Service, family)
	case spec.Literal:
		addr, err = netip.ParseAddr(map[lab.Family]string{lab.V4: to.V4, lab.V6: to.V6}[family])
	default:
		addr, err = w.hostAddr(to, family)
	}
	if err == nil && !addr.IsValid() {
		err = fmt.Errorf("it has no %s address", family)
	}
	return addr, err
}

// service finds a Service; one that is gone is what it was when it was last asked for.
func (w *world) service(name string) (*corev1.Service, error) {
	s, ok := kube.Get[*corev1.Service](w.Kube(), w.namespace, name)
	w.mu.Lock()
	defer w.mu.Unlock()
	if ok {
		w.former[name] = s
		return s, nil
	}
	if s := w.former[name]; s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("there is no Service %s", name)
}

func (w *world) clusterIP(service string, family lab.Family) (netip.Addr, error) {
	s, err := w.service(service)
	if err != nil {
		return netip.Addr{}, err
	}
	return addrOf(s.Spec.ClusterIPs, family), nil
}

func (w *world) ingress(service string, family lab.Family) (netip.Addr, error) {
	s, err := w.service(service)
	if err != nil {
		return netip.Addr{}, err
	}
	var ips []string
	for _, i := range s.Status.LoadBalancer.Ingress {
		ips = append(ips, i.IP)
	}
	return addrOf(ips, family), nil
}

func (w *world) servicePort(to spec.Target, proto string) (corev1.ServicePort, error) {
	s, err := w.service(to.Service)
	if err != nil {
		return corev1.ServicePort{}, err
	}
	for _, p := range s.Spec.Ports {
		if p.Port == int32(to.Port) && strings.EqualFold(string(p.Protocol), proto) {
			return p, nil
		}
	}
	return corev1.ServicePort{}, fmt.Errorf("the Service has no port %d/%s", to.Port, proto)
}

func (w *world) hostAddr(to spec.Target, family lab.Family) (netip.Addr, error) {
	h, err := w.Host(to.Host)
	if err != nil {
		return netip.Addr{}, err
	}
	switch to.Which {
	case spec.Loopback:
		if family == lab.V6 {
			return netip.IPv6Loopback(), nil
		}
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
	case spec.Secondary:
		primary := h.Addr(family)
		for _, a := range h.Addrs() {
			if lab.FamilyOf(a) == family && a != primary {
				return a, nil
			}
		}
		return netip.Addr{}, nil
	default:
		return h.Addr(family), nil
	}
}

func addrOf(ips []string, family lab.Family) netip.Addr {
	for _, ip := range ips {
		if a, err := netip.ParseAddr(ip); err == nil && lab.FamilyOf(a) == family {
			return a
		}
	}
	return netip.Addr{}
}

// shortName is a host's name as the scenario in the namespace knows it: its own pods without their namespace.
func shortName(namespace, name string) string { return strings.TrimPrefix(name, namespace+"/") }
