// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab/cluster/container"
	"github.com/viplab/viplab/lab/cluster/store"
)

// Pod is a pod whose containers run, or have ended.
type Pod struct {
	Place

	kubelet *Kubelet
	key     store.Key
	uid     types.UID
	object  *corev1.Pod // as it was at the start

	shared  *container.Pod
	mounted bool // the pod's folder is a mount

	ctx  context.Context // ends when the pod is to end at once
	kill context.CancelFunc
	done chan struct{} // closed when all has ended and is released

	ending     chan struct{} // closed when the pod is to end gracefully
	endingOnce sync.Once
	grace      time.Duration // of the graceful end

	reporting sync.Mutex
	mu        sync.Mutex // guards the rest and the state of the units
	inits     []*unit    // sidecars included
	mains     []*unit
	ready     bool // all init containers have done their work
	phase     corev1.PodPhase
	reason    string // why the pod fails although its containers do not: Evicted, DeadlineExceeded, or empty
	message   string
	began     metav1.Time
}

func newPod(k *Kubelet, object *corev1.Pod, at Place) *Pod {
	p := &Pod{
		Place: at, kubelet: k, key: store.KeyOf(object), uid: object.UID, object: object,
		done: make(chan struct{}), ending: make(chan struct{}), phase: corev1.PodPending, began: metav1.Now(),
	}
	p.ctx, p.kill = context.WithCancel(context.Background())
	for i := range object.Spec.InitContainers {
		p.inits = append(p.inits, newUnit(p, &object.Spec.InitContainers[i], initContainer))
	}
	for i := range object.Spec.Containers {
		p.mains = append(p.mains, newUnit(p, &object.Spec.Containers[i], mainContainer))
	}
	return p
}

// Key returns the pod's namespace and name.
func (p *Pod) Key() store.Key { return p.key }

// hostname returns the host name that the containers of a pod see.
func hostname(p *corev1.Pod) string {
	if p.Spec.HostNetwork {
		return p.Spec.NodeName
	}
	name := cmp.Or(p.Spec.Hostname, p.Name)
	return name[:min(len(name), 63)]
}

// Close ends the containers at once and returns when all is released. The logs stay.
func (p *Pod) Close() error {
	p.kill()
	<-p.done
	return nil
}

// terminate begins the graceful end.
func (p *Pod) terminate(grace time.Duration) {
	p.endingOnce.Do(func() {
		p.grace = grace
		close(p.ending)
	})
}

// expire ends a pod that has been active for longer than it may.
func (p *Pod) expire() {
	p.fail("DeadlineExceeded", "Pod was active on the node longer than the specified deadline", gracePeriod(p.object))
}

func (p *Pod) units() []*unit { return slices.Concat(p.inits, p.mains) }

// run brings the pod up and waits for its end.
func (p *Pod) run() {
	defer close(p.done)
	defer p.release()
	p.report()
	if !p.prepare() {
		p.finish()
		return
	}
	if s := p.object.Spec.ActiveDeadlineSeconds; s != nil {
		deadline := time.AfterFunc(time.Duration(*s)*time.Second, p.expire)
		defer deadline.Stop()
	}
	if p.runInits() {
		for _, u := range p.mains {
			u.start()
		}
		p.waitMains()
	}
	p.finish()
}

// prepare makes what the containers share. It waits for missing ConfigMaps and Secrets, and reports whether it is done.
func (p *Pod) prepare() bool {
	steps := []func() error{p.makeFolder, p.share, p.makeVolumes}
	reasons := []string{1: "FailedMount", 2: "FailedCreatePodSandBox", 3: "FailedCreatePodSandBox"} // by steps left
	for len(steps) > 0 {
		revision := p.kubelet.config.Store.Snapshot().Revision
		err := steps[0]()
		if err == nil {
			steps = steps[1:]
			continue
		}
		p.say(reasons[len(steps)], err.Error())
		changed := p.kubelet.config.Store.Changed(revision)
		if missing := (*configError)(nil); !errors.As(err, &missing) {
			changed = nil // another try would change nothing
		}
		select {
		case <-changed:
		case <-p.ending:
			return false
		case <-p.ctx.Done():
			return false
		}
	}
	p.say("", "")
	return true
}

func (p *Pod) share() (err error) {
	p.shared, err = container.NewPod(p.NS, hostname(p.object))
	return err
}

// say puts the reason why the pod does not start into its status and an Event.
func (p *Pod) say(reason, message string) {
	p.mu.Lock()
	changed := p.message != message
	p.message = message
	p.mu.Unlock()
	if changed {
		p.report()
	}
	if changed && message != "" {
		p.warn(reason, message)
	}
}

// runInits runs the init containers one after the other, and reports whether the others may start.
func (p *Pod) runInits() bool {
	for _, u := range p.inits {
		u.start()
		select {
		case <-u.startedUp:
		case <-u.finished:
			if u.code() != 0 {
				return false
			}
		case <-p.ending:
			return false
		case <-p.ctx.Done():
			return false
		}
	}
	p.mu.Lock()
	p.ready = true
	p.mu.Unlock()
	p.report()
	return true
}

// waitMains waits until the main containers have ended for good or are to end.
func (p *Pod) waitMains() {
	for _, u := range p.mains {
		select {
		case <-u.finished:
		case <-p.ending:
			return
		case <-p.ctx.Done():
			return
		}
	}
}

// finish ends what still runs: the main containers, and then the sidecars in reverse order.
func (p *Pod) finish() {
	grace := gracePeriod(p.object)
	if p.isEnding() {
		grace = p.grace
	}
	deadline := time.Now().Add(grace)
	var all sync.WaitGroup
	for _, u := range p.mains {
		all.Go(func() { u.end(deadline) })
	}
	all.Wait()
	for _, u := range slices.Backward(p.inits) {
		u.end(deadline)
	}
	if p.ctx.Err() != nil && !p.isEnding() {
		return // the object is gone, or the cluster closes
	}
	p.mu.Lock()
	p.phase = corev1.PodSucceeded
	failed := func(u *unit) bool { return !u.sidecar() && !u.succeededLocked() }
	if p.reason != "" || slices.ContainsFunc(p.units(), failed) {
		p.phase = corev1.PodFailed
	}
	p.mu.Unlock()
	p.report()
	if p.isEnding() {
		_ = p.kubelet.config.Store.RemovePod(p.key.Namespace, p.key.Name, p.uid) // fails only for a store without pods
	}
}

func (p *Pod) isEnding() bool {
	select {
	case <-p.ending:
		return true
	default:
		return false
	}
}

// release gives back what the pod holds beside its logs.
func (p *Pod) release() {
	for _, u := range p.units() {
		u.release()
	}
	if p.shared != nil {
		_ = p.shared.Close()
	}
	_ = p.removeFolder() // the sandbox's end removes what cannot be removed now
}

// restartPolicy returns the policy for a container of the pod.
func (p *Pod) restartPolicy() corev1.RestartPolicy {
	return cmp.Or(p.object.Spec.RestartPolicy, corev1.RestartPolicyAlways)
}

// command returns how programs start in a container, without their arguments.
func (p *Pod) command(c *corev1.Container, image Image) (container.Command, *environment, error) {
	env, err := p.environment(c, image)
	if err != nil {
		return container.Command{}, nil, err
	}
	if c.TTY {
		env.set("TERM", "xterm")
	}
	out := container.Command{
		Env: env.list(), Dir: cmp.Or(c.WorkingDir, image.Dir), User: image.User, Group: image.Group,
	}
	if pod := p.object.Spec.SecurityContext; pod != nil {
		out.User = uint32(ptr.Deref(pod.RunAsUser, int64(out.User)))
		out.Group = uint32(ptr.Deref(pod.RunAsGroup, int64(out.Group)))
		for _, g := range pod.SupplementalGroups {
			out.Groups = append(out.Groups, uint32(g))
		}
	}
	if own := c.SecurityContext; own != nil {
		out.User = uint32(ptr.Deref(own.RunAsUser, int64(out.User)))
		out.Group = uint32(ptr.Deref(own.RunAsGroup, int64(out.Group)))
		out.NetAdmin = ptr.Deref(own.Privileged, false) ||
			own.Capabilities != nil && slices.ContainsFunc(own.Capabilities.Add, isNetAdmin)
	}
	return out, env, nil
}

func isNetAdmin(c corev1.Capability) bool {
	return c == "NET_ADMIN" || c == "CAP_NET_ADMIN" || c == "ALL"
}

// files returns the files of a container.
func (p *Pod) files(c *corev1.Container, image Image) (container.Files, error) {
	mounts, err := p.mounts(c, image)
	f := container.Files{Root: image.Root, Mounts: mounts, Space: p.kubelet.config.Space}
	if limit := c.Resources.Limits.StorageEphemeral(); !limit.IsZero() {
		f.Space = 2 * limit.Value() // what exceeds the limit has to fit in, for guardSpace to see it
	}
	f.ReadOnly = c.SecurityContext != nil && ptr.Deref(c.SecurityContext.ReadOnlyRootFilesystem, false)
	return f, err
}
