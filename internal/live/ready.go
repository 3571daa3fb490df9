// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/machine"
)

// readyLimit is how long a command that applies manifests waits for their pods. Most are ready in a tenth of it; those
// that take longer, such as ones with a slow readiness probe, become ready after the command.
const readyLimit = time.Second

// lookAgain is how often pods are looked at that have not changed: starts depends on the time, too.
const lookAgain = 100 * time.Millisecond

// awaitPods waits until no pod is such that busy holds, or the limit is over.
func (l *Lab) awaitPods(ctx context.Context, limit time.Duration, busy func(*corev1.Pod) bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	state := l.standing.Cluster().Store()
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	for {
		snapshot := state.Snapshot()
		if !slices.ContainsFunc(snapshot.Pods, busy) {
			return
		}
		select {
		case <-state.Changed(snapshot.Revision):
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// starts reports whether a pod is about to become ready.
func starts(p *corev1.Pod) bool {
	if p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return false
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		w := c.State.Waiting
		if c.State.Terminated != nil && c.State.Terminated.ExitCode != 0 ||
			w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			return false // the status says why
		}
	}
	if slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool { return refuses(p, c) }) {
		return false
	}
	if slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
	}) {
		return false
	}
	return !slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// refuses reports whether the readiness probe of a container has failed for as long as it may: nobody knows when it
// will succeed.
func refuses(p *corev1.Pod, c corev1.Container) bool {
	probe := c.ReadinessProbe
	i := slices.IndexFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == c.Name })
	if probe == nil || i < 0 || p.Status.ContainerStatuses[i].State.Running == nil {
		return false
	}
	patience := time.Duration(probe.InitialDelaySeconds+probe.PeriodSeconds*probe.FailureThreshold) * time.Second
	return time.Since(p.Status.ContainerStatuses[i].State.Running.StartedAt.Time) > machine.Limit(patience)
}
