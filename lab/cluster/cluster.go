// SPDX-License-Identifier: Apache-2.0

// Package cluster joins a lab and the state of a Kubernetes cluster. Nodes of the lab register as Node objects. A Pod
// object gets a namespace and addresses, an echo server on each container port (or a DNS server, see DNSImage) and a
// status. A pod with hostNetwork serves on its node's addresses. With RunPrograms, pods run programs. The pods of the
// lab and the servers in them are named NAMESPACE/NAME.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/kubelet"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/traffic"
)

// Cluster is a Kubernetes cluster in a lab.
type Cluster struct {
	lab      *lab.Lab
	store    *store.Store
	cancel   context.CancelFunc
	done     chan struct{}
	again    chan struct{}  // wakes the kubelet
	underway sync.WaitGroup // pods being started or taken down

	programs  *kubelet.Kubelet // nil if pods run echo servers whatever their images
	hostPorts hostPorts

	mu      sync.Mutex
	servers map[store.Key]*traffic.Server // of pods that run what their images say
	running map[store.Key]*workload
	failed  map[store.Key]error
	changed chan struct{}

	balances bool   // Services get addresses of a load balancer
	routed   uint64 // the newest revision for which the load balancer has made routes
	unrouted error  // why it could not make all of them
}

// settings are what Options change.
type settings struct {
	images  kubelet.Images // nil: pods run echo servers
	balance bool           // Services get addresses of a load balancer
}

// Option changes what a cluster does.
type Option func(*settings)

// RunPrograms makes pods run what their images say: see package kubelet. Without it a pod gets echo servers and nothing
// else, whatever its images.
func RunPrograms(images kubelet.Images) Option { return func(s *settings) { s.images = images } }

// New builds the lab, registers its nodes and starts the kubelet.
func New(ctx context.Context, topology lab.Topology, options ...Option) (*Cluster, error) {
	var s settings
	for _, o := range options {
		o(&s)
	}
	l, err := lab.Build(ctx, topology)
	if err != nil {
		return nil, err
	}
	config := store.Config{Stack: topology.Stack, GracefulDeletion: s.images != nil, Events: s.images != nil,
		IPAddresses: s.images != nil}
	if s.images != nil {
		config.Clock = clock.RealClock{}
	}
	if s.balance {
		config.LoadBalancers = balancerRanges
	}
	c := &Cluster{
		lab: l, store: store.New(config), balances: s.balance,
		done: make(chan struct{}), again: make(chan struct{}, 1), changed: make(chan struct{}),
		running: map[store.Key]*workload{}, failed: map[store.Key]error{}, servers: map[store.Key]*traffic.Server{},
	}
	if s.images != nil {
		if c.programs, err = c.newKubelet(s.images); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	for _, n := range l.Nodes() {
		err := register(c.store, n, topology.Stack)
		if err == nil && c.programs != nil {
			err = announceKubelet(c.store, n.Name())
		}
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if s.balance {
		c.underway.Go(func() { c.balance(ctx) })
	}
	go c.kubelet(ctx)
	return c, nil
}

// kubeletPort is the port of a node's kubelet in its status. The API answers for it: see nodes/proxy.
const kubeletPort = 10250

// register stores the Node object of a lab node: ready, with its addresses and pod ranges.
func register(state *store.Store, n *lab.Node, stack lab.Stack) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:   n.Name(),
		Labels: map[string]string{corev1.LabelHostname: n.Name()},
	}}
	for _, p := range n.PodCIDRs() {
		node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, p.String())
	}
	node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
	if err := state.Apply(node); err != nil {
		return err
	}
	return store.UpdateStatus(state, "", n.Name(), func(node *corev1.Node) {
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: n.Name()}}
		for _, f := range stack.Families() {
			node.Status.Addresses = append(node.Status.Addresses,
				corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: n.Addr(f).String()})
		}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	})
}

// announceKubelet completes the status of a node on which programs run: the kubelet's port, and what it can carry.
// All nodes share the processors of this machine, and none has less than another.
func announceKubelet(state *store.Store, name string) error {
	return store.UpdateStatus(state, "", name, func(node *corev1.Node) {
		node.Status.DaemonEndpoints.KubeletEndpoint.Port = kubeletPort
		node.Status.Capacity = corev1.ResourceList{
			corev1.ResourceCPU:  *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
			corev1.ResourcePods: *resource.NewQuantity(podsPerNode, resource.DecimalSI),
		}
		node.Status.Allocatable = node.Status.Capacity
	})
}

// podsPerNode is how many pods a node says it can carry: the kubelet's default. The scheduler does not heed it.
const podsPerNode = 110

// Lab returns the network.
func (c *Cluster) Lab() *lab.Lab { return c.lab }

// Store returns the cluster's state.
func (c *Cluster) Store() *store.Store { return c.store }

// Server returns the echo server of a pod, or nil if the pod does not run or has none.
func (c *Cluster) Server(namespace, pod string) *traffic.Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := store.Key{Namespace: namespace, Name: pod}
	if w := c.running[k]; w != nil && w.server != nil {
		return w.server
	}
	return c.servers[k]
}

// Servers returns the echo servers of a namespace's running pods.
func (c *Cluster) Servers(namespace string) []*traffic.Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*traffic.Server
	for k, w := range c.running {
		if k.Namespace == namespace && w.server != nil {
			out = append(out, w.server)
		}
	}
	for k, s := range c.servers {
		if k.Namespace == namespace {
			out = append(out, s)
		}
	}
	return out
}

// Containers gives access to the containers of pods that run programs. It returns nil without RunPrograms.
func (c *Cluster) Containers() *kubelet.Kubelet { return c.programs }

// WaitPods waits until all pods of a namespace that should run do, and no others.
func (c *Cluster) WaitPods(ctx context.Context, namespace string) error {
	return c.wait(ctx, func() (string, error) { return c.pendingLocked(namespace) })
}

// wait returns when nothing is pending. It asks again after each change of the cluster.
func (c *Cluster) wait(ctx context.Context, pendingLocked func() (string, error)) error {
	for {
		c.mu.Lock()
		changed := c.changed
		pending, err := pendingLocked()
		c.mu.Unlock()
		if err != nil {
			return err
		}
		if pending == "" {
			return nil
		}
		select {
		case <-changed:
		case <-c.done:
			return fmt.Errorf("%s: the cluster is closed", pending)
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", pending, context.Cause(ctx))
		}
	}
}

// pendingLocked describes the kubelet's remaining work in a namespace. It is empty if there is none.
func (c *Cluster) pendingLocked(namespace string) (string, error) {
	want := map[store.Key]bool{}
	for _, p := range c.store.Snapshot().Pods {
		if p.Namespace != namespace || !shallRun(p) {
			continue
		}
		k := store.KeyOf(p)
		want[k] = true
		if err := c.failed[k]; err != nil {
			return "", err
		}
		if w := c.running[k]; w == nil || w.uid != p.UID || !w.reported {
			return fmt.Sprintf("pod %s is not running", k), nil
		}
	}
	for k := range c.running {
		if k.Namespace == namespace && !want[k] {
			return fmt.Sprintf("pod %s still runs", k), nil
		}
	}
	return "", nil
}

// Close ends the pods and closes the lab.
func (c *Cluster) Close() error {
	c.cancel()
	<-c.done
	var errs []error
	for _, w := range c.running {
		errs = append(errs, w.close())
	}
	if c.programs != nil {
		errs = append(errs, c.programs.Close())
	}
	return errors.Join(append(errs, c.lab.Close())...)
}
