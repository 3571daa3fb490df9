// SPDX-License-Identifier: Apache-2.0

// Package store is the control plane of a lab, in memory: it sets defaults, validates, allocates ClusterIPs and
// NodePorts, and runs the controllers that turn workloads into Pods and Services into EndpointSlices.
//
// Everything happens inside the call that causes it: when Apply returns, the derived pods and slices are there.
package store

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/viplab/viplab/lab"
)

// Config holds the settings of a cluster's administrator. The zero value is an IPv4 cluster with the usual ranges.
type Config struct {
	// Stack selects the IP families of the cluster.
	Stack lab.Stack
	// ServiceCIDRs are the ranges of ClusterIPs, the primary family first. Empty means 10.96.0.0/16 and
	// fd00:10:96::/112.
	ServiceCIDRs []netip.Prefix
	// NodePorts is the range of NodePorts. The zero value means 30000-32767.
	NodePorts PortRange
	// History is how many changes the store remembers for watchers; 0 means 100,000.
	History int
	// GracefulDeletion is for clusters whose kubelets end programs: the deletion of a pod that has a node and has not
	// ended only sets its deletion timestamp, and the kubelet calls RemovePod. Without it pods are removed at once.
	GracefulDeletion bool
	// LoadBalancers are ranges of addresses for Services of type LoadBalancer, at most one of each family. A Service
	// without a loadBalancerClass gets one of each of its families, in its status. Empty means that others do it.
	LoadBalancers []netip.Prefix
	// Events makes controllers and the scheduler tell what they do: see Store.Records. Without it there are none.
	Events bool
	// IPAddresses makes each ClusterIP have an object of kind IPAddress. Without it only those exist that clients make.
	IPAddresses bool
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Clock is for clusters in which time counts, in the place of Now: minReadySeconds, progressDeadlineSeconds, and of
	// Jobs activeDeadlineSeconds, ttlSecondsAfterFinished and the pause after a failed pod. Without it these have no
	// effect, and nothing happens of itself.
	Clock clock.WithDelayedExecution
}

// Store holds the state of a cluster. All methods may be called concurrently.
type Store struct {
	*state
	view *view // nil: objects are read as they are
}

// state is shared by all views of a store.
type state struct {
	families  []corev1.IPFamily
	ranges    map[corev1.IPFamily]netip.Prefix
	cidrs     []netip.Prefix
	nodeRange PortRange
	graceful  bool
	balancers map[corev1.IPFamily]netip.Prefix
	now       func() time.Time
	records   *records
	// ipAddresses reports whether ClusterIPs have IPAddresses.
	ipAddresses bool
	ca          string // of the API; empty: there are no ServiceAccounts but those of manifests
	tokenKey    []byte
	clock       clock.WithDelayedExecution // or nil

	mu       sync.Mutex
	revision uint64
	changed  chan struct{} // closed and replaced by every commit
	history  history
	newest   *Snapshot // of revision, or older
	index    *index
	tables   map[Kind]anyTable
	due      map[ref]time.Time // when timers wake controllers
	serials  map[ref]uint64    // pods ever made per controller, so that names are unique

	namespaces   *table[*corev1.Namespace]
	nodes        *table[*corev1.Node]
	pods         *table[*corev1.Pod]
	deployments  *table[*appsv1.Deployment]
	replicaSets  *table[*appsv1.ReplicaSet]
	daemonSets   *table[*appsv1.DaemonSet]
	statefulSets *table[*appsv1.StatefulSet]
	jobs         *table[*batchv1.Job]
	revisions    *table[*appsv1.ControllerRevision]
	budgets      *table[*policyv1.PodDisruptionBudget]
	services     *table[*corev1.Service]
	endpoints    *table[*corev1.Endpoints]
	slices       *table[*discoveryv1.EndpointSlice]
	policies     *table[*networkingv1.NetworkPolicy]
}

// New returns a cluster without nodes, with the namespaces default and kube-system.
func New(c Config) *Store {
	s := &Store{state: &state{
		ranges:      map[corev1.IPFamily]netip.Prefix{},
		nodeRange:   cmp.Or(c.NodePorts, PortRange{30000, 32767}),
		graceful:    c.GracefulDeletion,
		ipAddresses: c.IPAddresses,
		balancers:   map[corev1.IPFamily]netip.Prefix{},
		now:         c.Now,
		records:     newRecords(c.Events),
		clock:       c.Clock,
		tokenKey:    newTokenKey(),
		due:         map[ref]time.Time{},
		changed:     make(chan struct{}),
		history:     history{limit: cmp.Or(c.History, 100_000)},
		index:       newIndex(),
		serials:     map[ref]uint64{},
		tables:      map[Kind]anyTable{},
	}}
	for _, r := range resources {
		s.tables[r.Kind] = r.newTable()
	}
	s.namespaces = tableOf[*corev1.Namespace](s)
	s.nodes = tableOf[*corev1.Node](s)
	s.pods = tableOf[*corev1.Pod](s)
	s.deployments = tableOf[*appsv1.Deployment](s)
	s.replicaSets = tableOf[*appsv1.ReplicaSet](s)
	s.daemonSets = tableOf[*appsv1.DaemonSet](s)
	s.statefulSets = tableOf[*appsv1.StatefulSet](s)
	s.jobs = tableOf[*batchv1.Job](s)
	s.revisions = tableOf[*appsv1.ControllerRevision](s)
	s.budgets = tableOf[*policyv1.PodDisruptionBudget](s)
	s.services = tableOf[*corev1.Service](s)
	s.endpoints = tableOf[*corev1.Endpoints](s)
	s.slices = tableOf[*discoveryv1.EndpointSlice](s)
	s.policies = tableOf[*networkingv1.NetworkPolicy](s)
	if c.Clock != nil {
		s.now = c.Clock.Now
	}
	if s.now == nil {
		s.now = time.Now
	}
	s.setRanges(c)
	if err := s.Apply(s.initial()...); err != nil {
		panic(fmt.Sprintf("a cluster with ranges %v: %v", s.cidrs, err)) // the rest is constant
	}
	return s
}

// initial lists the objects that every cluster has.
func (s *Store) initial() []Object {
	ranges := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: defaultRange}}
	for _, p := range s.cidrs {
		ranges.Spec.CIDRs = append(ranges.Spec.CIDRs, p.Masked().String())
	}
	out := []Object{ranges}
	for _, name := range []string{"default", "kube-system"} {
		out = append(out, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return out
}

// tableOf returns the table of a type.
func tableOf[T Object](s *Store) *table[T] {
	var none T
	return s.tables[ResourceOf(none).Kind].(*table[T])
}

func (s *Store) setRanges(c Config) {
	s.cidrs = c.ServiceCIDRs
	if len(s.cidrs) == 0 {
		for _, f := range c.Stack.Families() {
			s.cidrs = append(s.cidrs, defaultRanges[f])
		}
	}
	for _, p := range s.cidrs {
		f := familyOf(p.Addr())
		s.families = append(s.families, f)
		s.ranges[f] = p.Masked()
	}
	for _, p := range c.LoadBalancers {
		s.balancers[familyOf(p.Addr())] = p.Masked()
	}
}

var defaultRanges = map[lab.Family]netip.Prefix{
	lab.V4: netip.MustParsePrefix("10.96.0.0/16"),
	lab.V6: netip.MustParsePrefix("fd00:10:96::/112"),
}

// ServiceCIDRs returns the ranges of ClusterIPs, one per family of the cluster, the primary one first.
func (s *Store) ServiceCIDRs() []netip.Prefix { return s.cidrs }

// NodePorts returns the range of NodePorts.
func (s *Store) NodePorts() PortRange { return s.nodeRange }

// Snapshot returns the current state. Without a change in between, it returns the same snapshot at no cost.
func (s *Store) Snapshot() *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	newest := &s.newest
	if s.view != nil {
		newest = &s.view.newest
	}
	if *newest == nil || (*newest).Revision != s.revision {
		*newest = &Snapshot{
			others:          map[Kind][]Object{},
			Revision:        s.revision,
			Namespaces:      visible(s.view, s.namespaces),
			Nodes:           visible(s.view, s.nodes),
			Pods:            visible(s.view, s.pods),
			Deployments:     visible(s.view, s.deployments),
			Services:        visible(s.view, s.services),
			Endpoints:       visible(s.view, s.endpoints),
			EndpointSlices:  visible(s.view, s.slices),
			NetworkPolicies: visible(s.view, s.policies),
		}
		for _, r := range resources {
			if !listed[r.Kind] {
				(*newest).others[r.Kind] = s.view.objects(s.tables[r.Kind].objectsInOrder())
			}
		}
	}
	return *newest
}

// Get returns an object of the store, which must not be changed, and reports whether it exists. Namespace is ignored
// for Namespaces and Nodes.
func Get[T Object](s *Store, namespace, name string) (T, bool) {
	var none T
	r := ResourceOf(none)
	if r == nil {
		return none, false
	}
	o, ok := s.Object(r.Kind, namespace, name)
	if !ok {
		return none, false
	}
	return o.(T), true
}

// Object is Get for a kind that is known only at run time.
func (s *Store) Object(kind Kind, namespace, name string) (Object, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.find(kind, namespace, name)
	if !ok {
		return nil, false
	}
	o = s.view.object(o)
	return o, o != nil
}

func (s *state) find(kind Kind, namespace, name string) (Object, bool) {
	r, err := ResourceNamed(string(kind))
	if err != nil {
		return nil, false
	}
	return s.tables[r.Kind].get(r.key(namespace, name))
}

// key returns the key of an object of this resource. An empty namespace means "default".
func (r *Resource) key(namespace, name string) Key {
	switch {
	case !r.Namespaced:
		return Key{"", name}
	case namespace == "":
		return Key{"default", name}
	default:
		return Key{namespace, name}
	}
}

func revisionOf(o Object) uint64 {
	n, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64) // the store wrote it
	return n
}
