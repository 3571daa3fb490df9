package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/kube"
	"github.com/viplab/viplab/lab/kube/dns"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/sctp"
	"github.com/viplab/viplab/lab/traffic"
)

// workload is a pod that runs.
type workload struct {
	uid      types.UID
	addrs    []netip.Addr
	server   *traffic.Server // nil if the pod has no ports
	dns      *dns.Server     // nil if the pod is no DNS server
	sctp     *sctp.Server    // nil if the pod has no SCTP ports
	inLab    bool            // the lab has a pod for it; not so with hostNetwork
	reported bool            // its status is in the cluster's state
	ending   bool            // it is being taken down
}

// kubelet makes the lab's pods follow the cluster's state until the context ends. One kubelet serves all nodes.
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
	c.ending.Wait()
}

func (c *Cluster) sync(ctx context.Context, snapshot *kube.Snapshot) {
	want := map[podKey]*corev1.Pod{}
	for _, p := range snapshot.Pods {
		if shallRun(p) {
			want[podKey{p.Namespace, p.Name}] = p
		}
	}
	for _, k := range c.obsolete(want) {
		c.ending.Go(func() {
			c.note(k, nil, c.end(k))
			c.lookAgain() // a pod of the same name may be waiting
		})
	}
	started := map[podKey]*workload{}
	for k, p := range want {
		if c.get(k) != nil || ctx.Err() != nil {
			continue
		}
		w, err := c.start(ctx, p)
		c.note(k, w, err)
		if err == nil {
			started[k] = w
		}
	}
	c.report(started)
}

// shallRun says whether a pod has a network of its node's making: it has a node, and has not ended. What has ended is what
// says so itself, and what is being deleted once its containers have ended, which its API object may outlive.
func shallRun(p *corev1.Pod) bool {
	over := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed ||
		p.DeletionTimestamp != nil && len(p.Status.ContainerStatuses) > 0 &&
			!slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Terminated == nil })
	return p.Spec.NodeName != "" && !over
}

func (c *Cluster) get(k podKey) *workload {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running[k]
}

// obsolete are the running pods that shall not run, or that another pod of the same name has replaced. Removing a pod's
// link takes the kernel some 20 ms, nearly all of it waiting, so the caller ends them side by side; they count as running
// until they have ended.
func (c *Cluster) obsolete(want map[podKey]*corev1.Pod) []podKey {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []podKey
	for k, w := range c.running {
		if p := want[k]; !w.ending && (p == nil || p.UID != w.uid) {
			w.ending = true
			out = append(out, k)
		}
	}
	return out
}

// lookAgain makes the kubelet compare the lab with the cluster's state once more.
func (c *Cluster) lookAgain() {
	select {
	case c.again <- struct{}{}:
	default:
	}
}

// note records what became of a pod and wakes those who wait.
func (c *Cluster) note(k podKey, w *workload, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, k)
	delete(c.failed, k)
	if err != nil {
		c.failed[k] = fmt.Errorf("pod %s: %w", k, err)
	} else if w != nil {
		c.running[k] = w
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *Cluster) end(k podKey) error {
	w := c.get(k)
	errs := []error{w.close()}
	if w.inLab {
		errs = append(errs, c.lab.RemovePod(k.String()))
	}
	return errors.Join(errs...)
}

func (c *Cluster) start(ctx context.Context, p *corev1.Pod) (*workload, error) {
	w := &workload{uid: p.UID}
	var ns *netns.NS
	if p.Spec.HostNetwork {
		node := c.lab.Node(p.Spec.NodeName)
		if node == nil {
			return nil, fmt.Errorf("node %s is not in the lab", p.Spec.NodeName)
		}
		ns, w.addrs = node.NS, primaryAddrs(&node.Host, c.lab.Stack())
	} else {
		pod, err := c.lab.AddPod(ctx, p.Spec.NodeName, lab.PodSpec{Name: p.Namespace + "/" + p.Name})
		if err != nil {
			return nil, err
		}
		w.inLab, ns, w.addrs = true, pod.NS, pod.Addrs()
	}
	return w, w.serve(ctx, ns, p, c.store)
}

// serve starts what the containers of the pod would.
func (w *workload) serve(ctx context.Context, ns *netns.NS, p *corev1.Pod, store *kube.Store) (err error) {
	if slices.ContainsFunc(p.Spec.Containers, isDNS) {
		if w.dns, err = dns.Serve(ctx, ns, p.Name, w.addrs, store); err != nil {
			return err
		}
	}
	name := p.Namespace + "/" + p.Name
	ports, sctpPorts := containerPorts(p)
	if len(ports) > 0 {
		w.server, err = traffic.Serve(ns, name, w.addrs, ports...)
	}
	if err == nil && len(sctpPorts) > 0 {
		w.sctp, err = sctp.Serve(ns, name, w.addrs, sctpPorts...)
	}
	return err
}

func isDNS(c corev1.Container) bool { return c.Image == DNSImage }

// close ends what serve has started.
func (w *workload) close() error {
	var errs []error
	if w.server != nil {
		errs = append(errs, w.server.Close())
	}
	if w.dns != nil {
		errs = append(errs, w.dns.Close())
	}
	if w.sctp != nil {
		errs = append(errs, w.sctp.Close())
	}
	return errors.Join(errs...)
}

// containerPorts are the ports of all containers, those of echo servers and those of SCTP. Those of init containers are of sidecars: others have ended when the pod
// runs, and have no use for ports.
func containerPorts(p *corev1.Pod) (echo []traffic.Port, associations []uint16) {
	for _, container := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		if isDNS(container) || container.Image == PauseImage {
			continue
		}
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

func primaryAddrs(h *lab.Host, stack lab.Stack) []netip.Addr {
	var out []netip.Addr
	for _, f := range stack.Families() {
		out = append(out, h.Addr(f))
	}
	return out
}

// hostAddrs are the addresses of a node.
func (c *Cluster) hostAddrs(node string) []netip.Addr {
	var out []netip.Addr
	for _, f := range c.lab.Stack().Families() {
		out = append(out, c.lab.Node(node).Addr(f))
	}
	return out
}

// report writes the status of pods that have just started, all at once. A pod with readiness gates becomes ready when
// someone says so, any other at once. A pod that was deleted meanwhile has no status any more; the next round ends it.
func (c *Cluster) report(started map[podKey]*workload) {
	for {
		there := c.still(started)
		err := c.store.Do(func(tx *kube.Tx) error {
			for k, p := range there {
				running := kube.ReportRunning(len(p.Spec.ReadinessGates) == 0, started[k].addrs...)
				host := kube.ReportHost(c.hostAddrs(p.Spec.NodeName)...)
				err := kube.UpdateStatus(tx, k.namespace, k.name, func(p *corev1.Pod) { running(p); host(p) })
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil && len(c.still(started)) < len(there) {
			continue // one of them was deleted just now
		}
		for k, w := range started {
			c.mu.Lock()
			w.reported = true
			c.mu.Unlock()
			c.note(k, w, err)
		}
		return
	}
}

// still are those of the pods that have not been deleted or replaced since they were started.
func (c *Cluster) still(started map[podKey]*workload) map[podKey]*corev1.Pod {
	out := map[podKey]*corev1.Pod{}
	for k, w := range started {
		if p, ok := kube.Get[*corev1.Pod](c.store, k.namespace, k.name); ok && p.UID == w.uid {
			out[k] = p
		}
	}
	return out
}
