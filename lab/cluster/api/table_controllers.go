// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// containerCells returns the names and the images of a template's containers.
func containerCells(t *corev1.PodTemplateSpec) []any {
	var names, images []string
	for _, c := range t.Spec.Containers {
		names, images = append(names, c.Name), append(images, c.Image)
	}
	return []any{strings.Join(names, ","), strings.Join(images, ",")}
}

func deploymentCells(d *appsv1.Deployment) []any {
	return slices.Concat([]any{
		d.Name, fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, *d.Spec.Replicas),
		int64(d.Status.UpdatedReplicas), int64(d.Status.AvailableReplicas), age(d),
	}, containerCells(&d.Spec.Template), []any{metav1.FormatLabelSelector(d.Spec.Selector)})
}

func replicaSetCells(r *appsv1.ReplicaSet) []any {
	return slices.Concat([]any{
		r.Name, int64(*r.Spec.Replicas), int64(r.Status.Replicas), int64(r.Status.ReadyReplicas), age(r),
	}, containerCells(&r.Spec.Template), []any{metav1.FormatLabelSelector(r.Spec.Selector)})
}

func daemonSetCells(d *appsv1.DaemonSet) []any {
	st := &d.Status
	return slices.Concat([]any{
		d.Name, int64(st.DesiredNumberScheduled), int64(st.CurrentNumberScheduled), int64(st.NumberReady),
		int64(st.UpdatedNumberScheduled), int64(st.NumberAvailable),
		orNone(labels.FormatLabels(d.Spec.Template.Spec.NodeSelector)), age(d),
	}, containerCells(&d.Spec.Template), []any{metav1.FormatLabelSelector(d.Spec.Selector)})
}

func statefulSetCells(s *appsv1.StatefulSet) []any {
	return slices.Concat([]any{
		s.Name, fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, *s.Spec.Replicas), age(s),
	}, containerCells(&s.Spec.Template))
}

func revisionCells(c *appsv1.ControllerRevision) []any {
	owner := none
	if o := metav1.GetControllerOf(c); o != nil {
		gk := schema.FromAPIVersionAndKind(o.APIVersion, o.Kind).GroupKind()
		owner = strings.ToLower(gk.String()) + "/" + o.Name
	}
	return []any{c.Name, owner, c.Revision, age(c)}
}

func budgetCells(b *policyv1.PodDisruptionBudget) []any {
	number := func(v *intstr.IntOrString) string {
		if v == nil {
			return "N/A"
		}
		return v.String()
	}
	return []any{b.Name, number(b.Spec.MinAvailable), number(b.Spec.MaxUnavailable),
		int64(b.Status.DisruptionsAllowed), age(b)}
}

func jobCells(j *batchv1.Job) []any {
	completions := fmt.Sprintf("%d/1 of %d", j.Status.Succeeded, ptr.Deref(j.Spec.Parallelism, 1))
	if j.Spec.Completions != nil {
		completions = fmt.Sprintf("%d/%d", j.Status.Succeeded, *j.Spec.Completions)
	}
	took := ""
	if start := j.Status.StartTime; start != nil {
		end := time.Now()
		if j.Status.CompletionTime != nil {
			end = j.Status.CompletionTime.Time
		}
		took = duration.HumanDuration(end.Sub(start.Time))
	}
	return slices.Concat([]any{j.Name, jobStatus(j), completions, took, age(j)},
		containerCells(&j.Spec.Template), []any{metav1.FormatLabelSelector(j.Spec.Selector)})
}

func jobStatus(j *batchv1.Job) string {
	has := func(t batchv1.JobConditionType) bool {
		return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
			return c.Type == t && c.Status == corev1.ConditionTrue
		})
	}
	switch {
	case has(batchv1.JobComplete):
		return "Complete"
	case has(batchv1.JobFailed):
		return "Failed"
	case j.DeletionTimestamp != nil:
		return "Terminating"
	case ptr.Deref(j.Spec.Suspend, false):
		return "Suspended"
	default:
		return "Running"
	}
}
