// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/viplab/viplab/internal/lab/sctp"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/dns"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/traffic"
)

// workload is a pod that runs, or is about to.
type workload struct {
	uid      types.UID
	addrs    []netip.Addr
	server   *traffic.Server // nil if the pod has no ports
	closers  []io.Closer     // all servers of the pod
	inLab    bool            // the lab has a pod for it; not so with hostNetwork
	starting bool            // it is being started; nothing above but its uid is known yet
	reported bool            // its status is in the cluster's state
	ending   bool            // it is being taken down
}

// kubelet makes the lab's pods follow the cluster's state until the context ends. One kubelet serves all nodes. It
// starts and ends pods concurrently, because most of that is waiting for the kernel; the lab admits one per node.
func (c *Cluster) kubelet(ctx context.Context) {
	defer close(c.done)
	for ctx.Err() == nil {
		snapshot := c.store.Snapshot()
		c.sync(ctx, snapshot)
		select {
		case <-ctx.Done():
		case <-c.again:
		case <-c.store.Changed(snapshot.Revision):
		}
	}
	c.underway.Wait()
}

func (c *Cluster) sync(ctx context.Context, snapshot *store.Snapshot) {
	if c.programs != nil {
		c.programs.Sync(snapshot)
	}
	want := map[store.Key]*corev1.Pod{}
	for _, p := range snapshot.Pods {
		if shallRun(p) {
			want[store.KeyOf(p)] = p
		}
	}
	for k, w := range c.obsolete(want) {
		c.underway.Go(func() {
			c.note(k, nil, c.stop(w, k))
			c.lookAgain() // a pod of the same name may be waiting
		})
	}
	for _, k := range c.missing(want) {
		c.underway.Go(func() { c.bringUp(ctx, k, want[k]) })
	}
}

// shallRun reports whether a pod shall have a network: it has a node and has not ended. A pod has ended if its phase
// says so, or if it is being deleted and its containers have ended.
func shallRun(p *corev1.Pod) bool {
	lives := func(c corev1.ContainerStatus) bool { return c.State.Terminated == nil }
	containers := p.Status.ContainerStatuses
	over := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed ||
		p.DeletionTimestamp != nil && len(containers) > 0 && !slices.ContainsFunc(containers, lives)
	return p.Spec.NodeName != "" && !over
}

// obsolete returns the running pods that shall not run or have been replaced, for the caller to end. They count as
// running until they have ended.
func (c *Cluster) obsolete(want map[store.Key]*corev1.Pod) map[store.Key]*workload {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[store.Key]*workload{}
	for k, w := range c.running {
		if p := want[k]; !w.starting && !w.ending && (p == nil || p.UID != w.uid) {
			w.ending = true
			out[k] = w
		}
	}
	return out
}

// missing returns the pods that should run and do not, for the caller to start. They count as running from now on.
func (c *Cluster) missing(want map[store.Key]*corev1.Pod) []store.Key {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []store.Key
	for k, p := range want {
		if c.running[k] == nil {
			c.running[k] = &workload{uid: p.UID, starting: true}
			out = append(out, k)
		}
	}
	return out
}

// bringUp starts a pod and reports its status.
func (c *Cluster) bringUp(ctx context.Context, k store.Key, p *corev1.Pod) {
	w, err := c.start(ctx, p)
	c.note(k, w, err)
	switch {
	case err == nil && c.programs != nil:
		c.reported(w) // by the programs' kubelet
	case err != nil && c.programs != nil:
		c.explain(p, err)
	case err == nil:
		if err := c.report(p, w); err != nil {
			c.note(k, w, err)
		}
	}
	if now, ok := store.Get[*corev1.Pod](c.store, k.Namespace, k.Name); !ok || now.UID != p.UID || !shallRun(now) {
		c.lookAgain() // catch up on changes that were ignored meanwhile
	}
}

// explain puts the reason why a pod does not start into its status.
func (c *Cluster) explain(p *corev1.Pod, reason error) {
	c.store.Record(store.Notice{About: p, Warning: true, Reason: "FailedCreatePodSandBox", Message: reason.Error(),
		Component: "kubelet", Host: p.Spec.NodeName})
	err := store.UpdateStatus(c.store, p.Namespace, p.Name, func(now *corev1.Pod) {
		if now.UID == p.UID {
			now.Status.Reason, now.Status.Message = "FailedCreatePodSandBox", reason.Error()
		}
	})
	if err != nil && !apierrors.IsNotFound(err) {
		c.note(store.KeyOf(p), nil, errors.Join(reason, err))
	}
}

// lookAgain makes the kubelet compare the lab with the cluster's state once more.
func (c *Cluster) lookAgain() {
	select {
	case c.again <- struct{}{}:
	default:
	}
}

// note records the result for a pod and wakes the waiters.
func (c *Cluster) note(k store.Key, w *workload, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, k)
	delete(c.failed, k)
	if err != nil {
		c.failed[k] = fmt.Errorf("pod %s: %w", k, err)
	} else if w != nil {
		c.running[k] = w
	}
	c.wakeLocked()
}

// wakeLocked wakes all waiters.
func (c *Cluster) wakeLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *Cluster) stop(w *workload, k store.Key) error {
	errs := []error{w.close()}
	if w.inLab {
		errs = append(errs, c.lab.RemovePod(k.String()))
	}
	return errors.Join(errs...)
}

func (c *Cluster) start(ctx context.Context, p *corev1.Pod) (*workload, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	w := &workload{uid: p.UID}
	var ns *netns.NS
	if p.Spec.HostNetwork {
		node := c.lab.Node(p.Spec.NodeName)
		if node == nil {
			return nil, fmt.Errorf("node %s is not in the lab", p.Spec.NodeName)
		}
		ns, w.addrs = node.NS, c.primaryAddrs(node)
	} else {
		pod, err := c.lab.AddPod(ctx, p.Spec.NodeName, lab.PodSpec{Name: store.KeyOf(p).String()})
		if err != nil {
			return nil, err
		}
		w.inLab, ns, w.addrs = true, pod.NS, pod.Addrs()
	}
	if c.programs != nil {
		withdraw, err := c.hostPorts.publish(c.lab.Node(p.Spec.NodeName), p, w.addrs)
		if err != nil {
			return nil, errors.Join(err, c.stop(w, store.KeyOf(p)))
		}
		w.closers = append(w.closers, closer(withdraw), c.programs.Start(p, c.place(ns, p, w.addrs)))
		return w, nil
	}
	if err := w.serve(ctx, ns, p, c.store); err != nil {
		return nil, errors.Join(err, c.stop(w, store.KeyOf(p)))
	}
	return w, nil
}

// serve starts the servers that the pod's containers would run.
func (w *workload) serve(ctx context.Context, ns *netns.NS, p *corev1.Pod, state *store.Store) (err error) {
	if slices.ContainsFunc(p.Spec.Containers, isDNS) {
		s, err := dns.Serve(ctx, ns, p.Name, w.addrs, state)
		if err != nil {
			return err
		}
		w.closers = append(w.closers, s)
	}
	name := store.KeyOf(p).String()
	var echo []corev1.Container
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		if !isDNS(c) && c.Image != PauseImage {
			echo = append(echo, c)
		}
	}
	var closers []io.Closer
	w.server, closers, err = serveEcho(ns, name, w.addrs, echo...)
	w.closers = append(w.closers, closers...)
	if err == nil && w.server != nil {
		err = w.server.DelayAcks()
	}
	return err
}

// serveEcho starts echo servers on the ports of containers. The server of TCP and UDP is nil without such
// ports.
func serveEcho(ns *netns.NS, name string, addrs []netip.Addr, containers ...corev1.Container) (
	server *traffic.Server, closers []io.Closer, err error) {
	ports, sctpPorts := containerPorts(containers)
	if len(ports) > 0 {
		if server, err = traffic.Serve(ns, name, addrs, ports...); err != nil {
			return nil, nil, err
		}
		closers = append(closers, server)
	}
	if len(sctpPorts) > 0 {
		s, err := sctp.Serve(ns, name, addrs, sctpPorts...)
		if err != nil {
			return server, closers, err
		}
		closers = append(closers, s)
	}
	return server, closers, nil
}

func isDNS(c corev1.Container) bool { return c.Image == DNSImage }

// close stops everything that serve has started.
func (w *workload) close() (err error) {
	for _, c := range w.closers {
		err = errors.Join(err, c.Close())
	}
	return err
}

// containerPorts returns the ports of containers, those of echo servers and those of SCTP.
func containerPorts(containers []corev1.Container) (echo []traffic.Port, associations []uint16) {
	for _, container := range containers {
		for _, port := range container.Ports {
			switch port.Protocol {
			case corev1.ProtocolUDP:
				echo = append(echo, traffic.Port{Proto: "udp", Number: uint16(port.ContainerPort)})
			case corev1.ProtocolTCP, "":
				echo = append(echo, traffic.Port{Proto: "tcp", Number: uint16(port.ContainerPort)})
			case corev1.ProtocolSCTP:
				associations = append(associations, uint16(port.ContainerPort))
			}
		}
	}
	return echo, associations
}

// primaryAddrs returns a node's primary address of each family.
func (c *Cluster) primaryAddrs(n *lab.Node) []netip.Addr {
	var out []netip.Addr
	for _, f := range c.lab.Stack().Families() {
		out = append(out, n.Addr(f))
	}
	return out
}

// report writes the status of a pod that has just started, unless it was deleted meanwhile. A pod with readiness gates
// becomes ready when someone says so, any other at once.
func (c *Cluster) report(p *corev1.Pod, w *workload) error {
	running := store.ReportRunning(len(p.Spec.ReadinessGates) == 0, w.addrs...)
	host := store.HostStatus(c.primaryAddrs(c.lab.Node(p.Spec.NodeName))...)
	err := store.UpdateStatus(c.store, p.Namespace, p.Name, func(now *corev1.Pod) {
		if now.UID == p.UID {
			running(now)
			host(now)
		}
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	c.reported(w)
	return nil
}

// reported records that a pod's status is in the cluster's state.
func (c *Cluster) reported(w *workload) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.reported = true
	c.wakeLocked()
}
