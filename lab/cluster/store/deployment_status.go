// SPDX-License-Identifier: Apache-2.0

package store

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// reportDeployment writes the status that follows from the ReplicaSets, and the revision.
func (tx *Tx) reportDeployment(key Key) {
	d := tx.s.deployments.objects[key]
	c := copyOf(d)
	st := appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Conditions: c.Status.Conditions}
	hash := templateHash(d.Name, &d.Spec.Template)
	var wanted int32
	for _, rs := range tx.replicaSetsOf(d) {
		wanted += *rs.Spec.Replicas
		st.Replicas += rs.Status.Replicas
		st.ReadyReplicas += rs.Status.ReadyReplicas
		st.AvailableReplicas += rs.Status.AvailableReplicas
		if rs.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == hash {
			st.UpdatedReplicas = rs.Status.Replicas
			if c.Annotations == nil {
				c.Annotations = map[string]string{}
			}
			c.Annotations[revisionAnnotation] = rs.Annotations[revisionAnnotation]
		}
	}
	st.UnavailableReplicas = max(0, wanted-st.AvailableReplicas)
	c.Status = st
	tx.setDeploymentConditions(c, d)
	tx.put(ResourceOf(d), c)
}

// setDeploymentConditions sets conditions in the words of Kubernetes' controller (deployment_util.go).
func (tx *Tx) setDeploymentConditions(d, was *appsv1.Deployment) {
	st, want := &d.Status, *d.Spec.Replicas
	available := appsv1.DeploymentCondition{
		Type: appsv1.DeploymentAvailable, Status: corev1.ConditionFalse,
		Reason: "MinimumReplicasUnavailable", Message: "Deployment does not have minimum availability.",
	}
	if st.AvailableReplicas >= want-maxUnavailable(d) {
		available.Status = corev1.ConditionTrue
		available.Reason, available.Message = "MinimumReplicasAvailable", "Deployment has minimum availability."
	}
	progressing := appsv1.DeploymentCondition{
		Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue,
		Reason: "ReplicaSetUpdated", Message: "Pods of the present template are starting.",
	}
	if d.Spec.Paused {
		progressing.Status = corev1.ConditionUnknown
		progressing.Reason, progressing.Message = "DeploymentPaused", "Deployment is paused"
	}
	if !d.Spec.Paused && st.UpdatedReplicas == want && st.Replicas == want && st.AvailableReplicas == want {
		progressing.Reason, progressing.Message = "NewReplicaSetAvailable",
			"All pods are of the present template, and available."
	}
	if tx.s.clock != nil && progressing.Reason == "ReplicaSetUpdated" {
		tx.heedDeadline(d, was, &progressing)
	}
	tx.setDeploymentCondition(st, available)
	tx.setDeploymentCondition(st, progressing)
}

// heedDeadline changes what is to be said about the progress of a rollout if it has made none for longer than
// progressDeadlineSeconds.
func (tx *Tx) heedDeadline(d, was *appsv1.Deployment, now *appsv1.DeploymentCondition) {
	end := tx.time.Add(seconds(*d.Spec.ProgressDeadlineSeconds))
	i := slices.IndexFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == now.Type })
	if i < 0 || d.Status.Conditions[i].Reason == "NewReplicaSetAvailable" {
		tx.wakeAt(d, end)
		return // it begins
	}
	last := &d.Status.Conditions[i]
	if hasProgressed(d, was) {
		last.LastUpdateTime = tx.now
		tx.wakeAt(d, end)
	} else if last.Reason == "ProgressDeadlineExceeded" ||
		tx.passed(d, last.LastUpdateTime.Add(seconds(*d.Spec.ProgressDeadlineSeconds))) {
		now.Status, now.Reason = corev1.ConditionFalse, "ProgressDeadlineExceeded"
		now.Message = "The pods of the present template have made no progress for as long as progressDeadlineSeconds allows."
	}
}

// hasProgressed reports whether a rollout has begun, or has more new pods or fewer old ones than before.
func hasProgressed(d, was *appsv1.Deployment) bool {
	now, old := &d.Status, &was.Status
	return d.Annotations[revisionAnnotation] != was.Annotations[revisionAnnotation] ||
		now.UpdatedReplicas > old.UpdatedReplicas || now.ReadyReplicas > old.ReadyReplicas ||
		now.AvailableReplicas > old.AvailableReplicas ||
		now.Replicas-now.UpdatedReplicas < old.Replicas-old.UpdatedReplicas
}

func (tx *Tx) setDeploymentCondition(st *appsv1.DeploymentStatus, now appsv1.DeploymentCondition) {
	now.LastUpdateTime, now.LastTransitionTime = tx.now, tx.now
	i := slices.IndexFunc(st.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == now.Type })
	if i < 0 {
		st.Conditions = append(st.Conditions, now)
		return
	}
	was := &st.Conditions[i]
	if was.Status == now.Status {
		if was.Reason == now.Reason {
			return
		}
		now.LastTransitionTime = was.LastTransitionTime
	}
	*was = now
}

// maxUnavailable returns how many of the replicas a Deployment may lack and still count as available.
func maxUnavailable(d *appsv1.Deployment) int32 {
	update, want := d.Spec.Strategy.RollingUpdate, int(*d.Spec.Replicas)
	if d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || update == nil || want == 0 {
		return 0
	}
	unavailable := scaled(update.MaxUnavailable, want, false)
	if unavailable == 0 && scaled(update.MaxSurge, want, true) == 0 {
		unavailable = 1 // else nothing could ever be replaced
	}
	return int32(min(unavailable, want))
}

// scaled returns a number, or a percentage of the whole. An invalid value counts as 0.
func scaled(v *intstr.IntOrString, whole int, up bool) int {
	if v == nil {
		return 0
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(v, whole, up)
	if err != nil {
		return 0
	}
	return n
}
