// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The pause before a Job's next pod after one has failed; each further failure doubles it
// (pkg/controller/job/job_controller.go).
const (
	firstJobBackOff = 10 * time.Second
	maxJobBackOff   = 10 * time.Minute
)

// isLate reports whether a Job has been active for longer than its activeDeadlineSeconds.
func (tx *Tx) isLate(j *batchv1.Job) bool {
	if tx.s.clock == nil || j.Spec.ActiveDeadlineSeconds == nil || j.Status.StartTime == nil {
		return false
	}
	return tx.passed(j, j.Status.StartTime.Add(seconds(*j.Spec.ActiveDeadlineSeconds)))
}

// expire deletes a Job that has ended, after its ttlSecondsAfterFinished. It reports whether it did.
func (tx *Tx) expire(j *batchv1.Job) bool {
	if tx.s.clock == nil || j.Spec.TTLSecondsAfterFinished == nil || !jobIsOver(j) || j.DeletionTimestamp != nil {
		return false
	}
	var ended time.Time
	for _, c := range j.Status.Conditions {
		if c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed {
			ended = c.LastTransitionTime.Time
		}
	}
	if !tx.passed(j, ended.Add(seconds(*j.Spec.TTLSecondsAfterFinished))) {
		return false
	}
	tx.dropRef(ref{KindJob, KeyOf(j)}, DeleteOptions{Propagation: metav1.DeletePropagationForeground})
	return true
}

// mayRetry reports whether the pause after the failed pods of a Job is over. Failures before a success do not count.
func (tx *Tx) mayRetry(j *batchv1.Job) bool {
	if tx.s.clock == nil {
		return true
	}
	over := those(tx.podsOwnedBy(j), isOver)
	slices.SortStableFunc(over, func(a, b *corev1.Pod) int { return endOf(b).Compare(endOf(a)) })
	failed := 0
	for failed < len(over) && over[failed].Status.Phase == corev1.PodFailed {
		failed++
	}
	if failed == 0 {
		return true
	}
	pause := min(firstJobBackOff<<min(failed-1, 10), maxJobBackOff)
	return tx.passed(j, endOf(over[0]).Add(pause))
}

// endOf returns when the last container of a pod has ended; without containers, when the pod was made.
func endOf(p *corev1.Pod) time.Time {
	var last metav1.Time
	for _, c := range p.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil && last.Before(&t.FinishedAt) {
			last = t.FinishedAt
		}
	}
	return cmp.Or(last, p.CreationTimestamp).Time
}
