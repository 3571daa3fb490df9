// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/container"
	"github.com/viplab/viplab/lab/cluster/store"
)

// spaceCheck is how often the kubelet looks what a container with a limit has written: the kernel reports no event.
const spaceCheck = time.Second

// guardSpace evicts the pod when a container has written more than its limit of ephemeral storage, as a kubelet does.
// It returns when that has happened or ctx ends.
func (u *unit) guardSpace(ctx context.Context, run runner) {
	c, isProgram := run.(*container.Container)
	limit := u.spec.Resources.Limits.StorageEphemeral()
	if !isProgram || limit.IsZero() {
		return
	}
	tick := time.NewTicker(spaceCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if written, err := c.Written(); err == nil && written > limit.Value() {
			u.pod.fail("Evicted", fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", u.spec.Name,
				limit), time.Second)
			return
		}
	}
}

// fail ends a pod before its time: it becomes Failed, with a reason.
func (p *Pod) fail(reason, message string, grace time.Duration) {
	p.mu.Lock()
	p.reason, p.message = reason, message
	p.mu.Unlock()
	p.record(store.Notice{Reason: reason, Message: message, Warning: reason == "Evicted"})
	p.terminate(grace)
}

// noteEvictionLocked sets the condition of an evicted pod, which controllers of Jobs read.
func (p *Pod) noteEvictionLocked(now *corev1.Pod) {
	if p.reason == "Evicted" {
		setCondition(&now.Status, corev1.DisruptionTarget, corev1.ConditionTrue, corev1.PodReasonTerminationByKubelet)
	}
}
