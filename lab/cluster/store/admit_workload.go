// SPDX-License-Identifier: Apache-2.0

package store

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// admitWorkload completes and checks the workloads other than Deployments.
func (tx *Tx) admitWorkload(obj, old Object) field.ErrorList {
	switch o := obj.(type) {
	case *appsv1.ReplicaSet:
		return admitReplicaSet(o, old)
	case *appsv1.DaemonSet:
		return admitDaemonSet(o, old)
	case *appsv1.StatefulSet:
		return admitStatefulSet(o, old)
	case *appsv1.ControllerRevision:
		return admitRevision(o, old)
	case *batchv1.Job:
		return tx.admitJob(o, old)
	}
	return nil
}

func nonNegative(n *int32, path ...string) field.ErrorList {
	return apivalidation.ValidateNonnegativeField(int64(ptr.Deref(n, 0)), field.NewPath("spec", path...))
}

func admitReplicaSet(o *appsv1.ReplicaSet, old Object) field.ErrorList {
	setDefault(&o.Spec.Replicas, ptr.To[int32](1))
	defaultPodSpec(&o.Spec.Template.Spec)
	var was *metav1.LabelSelector
	if old != nil {
		was = old.(*appsv1.ReplicaSet).Spec.Selector
	}
	return append(nonNegative(o.Spec.Replicas, "replicas"),
		validateTemplate(KindReplicaSet, o.Spec.Selector, was, &o.Spec.Template, corev1.RestartPolicyAlways)...)
}

func admitDaemonSet(o *appsv1.DaemonSet, old Object) field.ErrorList {
	strategy := &o.Spec.UpdateStrategy
	setDefault(&strategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if strategy.Type == appsv1.RollingUpdateDaemonSetStrategyType && strategy.RollingUpdate == nil {
		strategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{
			MaxUnavailable: ptr.To(intstr.FromInt32(1)), MaxSurge: ptr.To(intstr.FromInt32(0)),
		}
	}
	setDefault(&o.Spec.RevisionHistoryLimit, ptr.To[int32](10))
	defaultPodSpec(&o.Spec.Template.Spec)
	var was *metav1.LabelSelector
	if old != nil {
		was = old.(*appsv1.DaemonSet).Spec.Selector
	}
	errs := oneOf(field.NewPath("spec", "updateStrategy", "type"), strategy.Type,
		appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType)
	return append(errs,
		validateTemplate(KindDaemonSet, o.Spec.Selector, was, &o.Spec.Template, corev1.RestartPolicyAlways)...)
}

func admitStatefulSet(o *appsv1.StatefulSet, old Object) field.ErrorList {
	spec := &o.Spec
	setDefault(&spec.Replicas, ptr.To[int32](1))
	setDefault(&spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	strategy := &spec.UpdateStrategy
	setDefault(&strategy.Type, appsv1.RollingUpdateStatefulSetStrategyType)
	if strategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && strategy.RollingUpdate == nil {
		strategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr.To[int32](0)}
	}
	setDefault(&spec.RevisionHistoryLimit, ptr.To[int32](10))
	setDefault(&spec.PersistentVolumeClaimRetentionPolicy, &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
		WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
		WhenScaled:  appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
	})
	defaultPodSpec(&spec.Template.Spec)
	var was *metav1.LabelSelector
	if old != nil {
		was = old.(*appsv1.StatefulSet).Spec.Selector
	}
	errs := append(nonNegative(spec.Replicas, "replicas"),
		oneOf(field.NewPath("spec", "podManagementPolicy"), spec.PodManagementPolicy,
			appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement)...)
	errs = append(errs, oneOf(field.NewPath("spec", "updateStrategy", "type"), strategy.Type,
		appsv1.RollingUpdateStatefulSetStrategyType, appsv1.OnDeleteStatefulSetStrategyType)...)
	template := spec.Template.DeepCopy()
	for _, c := range spec.VolumeClaimTemplates { // each becomes a volume
		if !slices.ContainsFunc(template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == c.Name }) {
			template.Spec.Volumes = append(template.Spec.Volumes, corev1.Volume{Name: c.Name})
		}
	}
	return append(errs, validateTemplate(KindStatefulSet, spec.Selector, was, template, corev1.RestartPolicyAlways)...)
}

// admitJob gives a Job a selector of its own, which nothing else can match.
func (tx *Tx) admitJob(o *batchv1.Job, old Object) field.ErrorList {
	spec := &o.Spec
	if spec.Completions == nil && spec.Parallelism == nil {
		spec.Completions = ptr.To[int32](1)
	}
	setDefault(&spec.Parallelism, ptr.To[int32](1))
	setDefault(&spec.CompletionMode, ptr.To(batchv1.NonIndexedCompletion))
	setDefault(&spec.BackoffLimit, ptr.To[int32](6))
	setDefault(&spec.Suspend, ptr.To(false))
	setDefault(&spec.ManualSelector, ptr.To(false))
	setDefault(&spec.PodReplacementPolicy, ptr.To(batchv1.TerminatingOrFailed))
	defaultPodSpec(&spec.Template.Spec)
	var was *metav1.LabelSelector
	if old != nil {
		w := old.(*batchv1.Job)
		was = w.Spec.Selector
		if spec.Selector == nil {
			spec.Selector = was
			spec.Template.Labels = maps.Clone(spec.Template.Labels)
			if spec.Template.Labels == nil {
				spec.Template.Labels = map[string]string{}
			}
			maps.Copy(spec.Template.Labels, w.Spec.Template.Labels)
		}
	} else if !ptr.Deref(spec.ManualSelector, false) && spec.Selector == nil {
		// put is next, and gives the Job this uid.
		selectOwnPods(o, string(newUID(KindJob, KeyOf(o), tx.s.revision+1)))
	}
	if old == nil && len(o.Labels) == 0 {
		o.Labels = maps.Clone(spec.Template.Labels)
	}
	errs := append(nonNegative(spec.Parallelism, "parallelism"), nonNegative(spec.Completions, "completions")...)
	errs = append(errs, nonNegative(spec.BackoffLimit, "backoffLimit")...)
	if isIndexed(o) && spec.Completions == nil {
		errs = append(errs, field.Required(field.NewPath("spec", "completions"),
			"when completion mode is Indexed, completions must be set"))
	}
	return append(errs, validateTemplate(KindJob, spec.Selector, was, &spec.Template,
		corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)...)
}

// selectOwnPods labels the pods of a new Job with its uid.
func selectOwnPods(o *batchv1.Job, id string) {
	o.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{batchv1.ControllerUidLabel: id}}
	labels := maps.Clone(o.Spec.Template.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, map[string]string{
		batchv1.ControllerUidLabel: id, "controller-uid": id, batchv1.JobNameLabel: o.Name, "job-name": o.Name,
	})
	o.Spec.Template.Labels = labels
}
