// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// reconcileJob makes pods until as many as the Job wants have succeeded, or too many have failed. Pods that have ended
// stay, for their logs.
func (tx *Tx) reconcileJob(key Key) {
	j := tx.s.jobs.objects[key]
	if j == nil || tx.expire(j) {
		return
	}
	if j.DeletionTimestamp == nil && !jobIsOver(j) {
		j = tx.reportJob(j)
		switch active := those(tx.podsOwnedBy(j), isActive); {
		case jobIsOver(j) || ptr.Deref(j.Spec.Suspend, false):
			tx.deletePods(active...)
		case isIndexed(j):
			tx.runIndexes(j, active)
		default:
			tx.runJob(j, active)
		}
	}
	tx.expire(tx.reportJob(tx.s.jobs.objects[key]))
}

func jobIsOver(j *batchv1.Job) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed)
	})
}

func isIndexed(j *batchv1.Job) bool {
	return ptr.Deref(j.Spec.CompletionMode, batchv1.NonIndexedCompletion) == batchv1.IndexedCompletion
}

// runJob keeps as many pods active as may run at once and are still needed. Without completions, none is made after the
// first has succeeded.
func (tx *Tx) runJob(j *batchv1.Job, active []*corev1.Pod) {
	want := int(*j.Spec.Parallelism)
	if j.Spec.Completions != nil {
		want = min(want, int(*j.Spec.Completions-j.Status.Succeeded))
	} else if j.Status.Succeeded > 0 {
		want = min(want, len(active))
	}
	active = tx.keepBest(active, max(0, want))
	if len(active) >= want || !tx.mayRetry(j) {
		return
	}
	for n := len(active); n < want; n++ {
		tx.createPod(j, podOf(j, &j.Spec.Template, nil), j.Name+"-")
	}
}

// runIndexes keeps pods active for the lowest indexes that have not succeeded.
func (tx *Tx) runIndexes(j *batchv1.Job, active []*corev1.Pod) {
	done, running := map[int]bool{}, map[int]bool{}
	for _, p := range tx.podsOwnedBy(j) {
		if p.Status.Phase == corev1.PodSucceeded {
			done[completionIndex(p)] = true
		}
	}
	active = tx.keepBest(active, int(*j.Spec.Parallelism))
	for _, p := range active {
		running[completionIndex(p)] = true
	}
	room := int(*j.Spec.Parallelism) - len(active)
	if room > 0 && !tx.mayRetry(j) {
		return
	}
	for i := 0; i < int(*j.Spec.Completions) && room > 0; i++ {
		if !done[i] && !running[i] {
			tx.createPod(j, indexedPod(j, i), fmt.Sprintf("%s-%d-", j.Name, i))
			room--
		}
	}
}

func completionIndex(p *corev1.Pod) int {
	i, err := strconv.Atoi(p.Annotations[batchv1.JobCompletionIndexAnnotation])
	if err != nil {
		return -1
	}
	return i
}

// indexedPod returns the pod of an index, which it finds in the variable JOB_COMPLETION_INDEX and in its hostname.
func indexedPod(j *batchv1.Job, i int) *corev1.Pod {
	index := strconv.Itoa(i)
	p := podOf(j, &j.Spec.Template, map[string]string{batchv1.JobCompletionIndexAnnotation: index})
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, batchv1.JobCompletionIndexAnnotation, index)
	p.Spec.Hostname = j.Name + "-" + index
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for c := range list {
			list[c].Env = append(list[c].Env, corev1.EnvVar{Name: "JOB_COMPLETION_INDEX", Value: index})
		}
	}
	return p
}

// reportJob writes the status of a Job, and how it ended once it has.
func (tx *Tx) reportJob(j *batchv1.Job) *batchv1.Job {
	pods := tx.podsOwnedBy(j)
	c := copyOf(j)
	st := &c.Status
	if st.StartTime == nil && !ptr.Deref(j.Spec.Suspend, false) {
		st.StartTime = &tx.now
	}
	st.Active = count(pods, isActive)
	st.Ready = ptr.To(count(pods, func(p *corev1.Pod) bool { return isActive(p) && isReady(p) }))
	st.Failed = count(pods, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	succeeded := those(pods, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	st.Succeeded = int32(len(succeeded))
	if isIndexed(j) {
		indexes := map[int]bool{}
		for _, p := range succeeded {
			indexes[completionIndex(p)] = true
		}
		st.Succeeded, st.CompletedIndexes = int32(len(indexes)), intervals(indexes)
	}
	if !jobIsOver(j) {
		tx.endJob(c, failures(pods))
	}
	tx.put(ResourceOf(c), c)
	return c
}

// failures counts failed pods and restarts of containers.
func failures(pods []*corev1.Pod) (n int32) {
	for _, p := range pods {
		if p.Status.Phase == corev1.PodFailed {
			n++
		}
		for _, c := range p.Status.ContainerStatuses {
			n += c.RestartCount
		}
	}
	return n
}

// endJob sets the conditions of a Job that has come to its end.
func (tx *Tx) endJob(j *batchv1.Job, failures int32) {
	st := &j.Status
	condition := func(t batchv1.JobConditionType, reason, message string) {
		st.Conditions = append(st.Conditions, batchv1.JobCondition{Type: t, Status: corev1.ConditionTrue,
			LastProbeTime: tx.now, LastTransitionTime: tx.now, Reason: reason, Message: message})
	}
	fail := func(reason, message string) {
		tx.record(Notice{About: j, Warning: true, Reason: reason, Message: message, Component: controllerNames[KindJob]})
		condition(batchv1.JobFailureTarget, reason, message)
		condition(batchv1.JobFailed, reason, message)
	}
	switch {
	case failures > *j.Spec.BackoffLimit:
		fail(batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit")
	case tx.isLate(j):
		fail(batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline")
	case j.Spec.Completions != nil && st.Succeeded >= *j.Spec.Completions,
		j.Spec.Completions == nil && st.Succeeded > 0 && st.Active == 0:
		condition(batchv1.JobSuccessCriteriaMet, batchv1.JobReasonCompletionsReached,
			"Reached expected number of succeeded pods")
		condition(batchv1.JobComplete, batchv1.JobReasonCompletionsReached, "Reached expected number of succeeded pods")
		st.CompletionTime = &tx.now
		tx.say(j, "Completed", "Job completed")
	}
}

// intervals writes numbers as in "0,2-4".
func intervals(numbers map[int]bool) string {
	var out []string
	for i := 0; len(numbers) > 0 && i <= maxOf(numbers); i++ {
		if !numbers[i] {
			continue
		}
		first := i
		for numbers[i+1] {
			i++
		}
		if i > first {
			out = append(out, fmt.Sprintf("%d-%d", first, i))
		} else {
			out = append(out, strconv.Itoa(first))
		}
	}
	return strings.Join(out, ",")
}

func maxOf(numbers map[int]bool) (n int) {
	for i := range numbers {
		n = max(n, i)
	}
	return n
}
