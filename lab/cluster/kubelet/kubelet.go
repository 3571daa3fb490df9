// SPDX-License-Identifier: Apache-2.0

// Package kubelet runs the containers of pods in the namespaces that a lab has for them, and reports their state: init
// containers and sidecars, restarts with back-off, probes, hooks, volumes, logs, and the graceful end of a pod.
//
// A container runs a program, see package container, or a server inside viplab, as its image says. No image is ever
// pulled: an image is a name for something that this machine has.
package kubelet

import (
	"cmp"
	"context"
	"io"
	"net/netip"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/netns"
)

// Config is what a kubelet needs.
type Config struct {
	Store  *store.Store
	Images Images
	// Folder is where the pods' volumes are, below folders with the uids of the pods.
	Folder string
	// ResolvConf returns /etc/resolv.conf for a pod.
	ResolvConf func(*corev1.Pod) string
	// Serve starts a server inside viplab for a container whose image is one.
	Serve func(ctx context.Context, p *Pod, c *corev1.Container, s Server) (io.Closer, error)
	// Space limits a pod's volumes, and what each container writes, in bytes; 0 means 1 GiB.
	Space int64
	// BackOff is how long a container that has crashed twice waits before it starts again; each further crash doubles
	// it, up to 30 times as long. 0 means 10 seconds, as in a cluster.
	BackOff time.Duration
}

// Kubelet runs the pods of all nodes. Its methods may be called concurrently.
type Kubelet struct {
	config Config

	mu   sync.Mutex
	pods map[store.Key]*Pod // those that run, and ended ones whose logs are kept
}

// New returns a kubelet without pods.
func New(c Config) *Kubelet {
	c.Space = cmp.Or(c.Space, 1<<30)
	c.BackOff = cmp.Or(c.BackOff, 10*time.Second)
	return &Kubelet{config: c, pods: map[store.Key]*Pod{}}
}

// Place is where a pod runs.
type Place struct {
	NS, Node         *netns.NS
	Addrs, HostAddrs []netip.Addr
}

// Start starts the containers of a pod and returns at once. The pod's status says how far they are.
func (k *Kubelet) Start(object *corev1.Pod, at Place) *Pod {
	p := newPod(k, object, at)
	k.mu.Lock()
	k.pods[p.key] = p
	k.mu.Unlock()
	go p.run()
	return p
}

// Sync ends the pods that are being deleted, and forgets those that are no longer in the state. Call it after every
// change of the state.
func (k *Kubelet) Sync(snapshot *store.Snapshot) {
	now := map[types.UID]*corev1.Pod{}
	for _, p := range snapshot.Pods {
		now[p.UID] = p
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, p := range k.pods {
		object := now[p.uid]
		switch {
		case object == nil:
			p.kill()
			delete(k.pods, key)
		case object.DeletionTimestamp != nil:
			p.terminate(gracePeriod(object))
		case gatesHaveChanged(object):
			go p.report()
		}
	}
}

func gracePeriod(p *corev1.Pod) time.Duration {
	seconds := p.DeletionGracePeriodSeconds
	if seconds == nil {
		seconds = p.Spec.TerminationGracePeriodSeconds
	}
	if seconds == nil {
		return 30 * time.Second
	}
	return time.Duration(*seconds) * time.Second
}

// Close ends all pods at once and removes their volumes.
func (k *Kubelet) Close() error {
	k.mu.Lock()
	pods := k.pods
	k.pods = map[store.Key]*Pod{}
	k.mu.Unlock()
	for _, p := range pods {
		p.kill()
	}
	for _, p := range pods {
		<-p.done
	}
	return os.RemoveAll(k.config.Folder)
}
