// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// revisionAnnotation numbers the templates of a Deployment, on its ReplicaSets; "kubectl rollout undo" goes by it.
const revisionAnnotation = "deployment.kubernetes.io/revision"

// reconcileDeployment makes the ReplicaSet of the present template, and moves the replicas there from those of older
// ones, as Kubernetes' controller does (pkg/controller/deployment).
func (tx *Tx) reconcileDeployment(key Key) {
	d := tx.s.deployments.objects[key]
	if d == nil {
		return
	}
	if d.DeletionTimestamp == nil {
		current, old := tx.currentReplicaSet(d)
		switch {
		case d.Spec.Paused:
			tx.scalePaused(d, current, old)
		case d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType:
			tx.recreate(d, current, old)
		default:
			tx.growNew(d, current, old)
			tx.shrinkOld(d, current, old)
		}
		if !d.Spec.Paused {
			tx.tidyHistory(d, old)
		}
	}
	tx.reportDeployment(key)
}

// replicaSetsOf lists the ReplicaSets of a Deployment, the oldest revision first.
func (tx *Tx) replicaSetsOf(d *appsv1.Deployment) []*appsv1.ReplicaSet {
	var out []*appsv1.ReplicaSet
	for r := range tx.s.index.owned[d.UID] {
		if r.kind == KindReplicaSet {
			out = append(out, tx.s.replicaSets.objects[r.key])
		}
	}
	slices.SortFunc(out, func(a, b *appsv1.ReplicaSet) int {
		return cmp.Or(cmp.Compare(revisionNumber(a), revisionNumber(b)), cmp.Compare(a.Name, b.Name))
	})
	return out
}

func revisionNumber(rs *appsv1.ReplicaSet) int {
	n, _ := strconv.Atoi(rs.Annotations[revisionAnnotation]) // 0 is before all others
	return n
}

// currentReplicaSet returns the ReplicaSet of the present template, and the names of the others, the oldest first. It
// makes the former, unless the Deployment is paused: then there may be none.
func (tx *Tx) currentReplicaSet(d *appsv1.Deployment) (current *appsv1.ReplicaSet, old []Key) {
	hash := templateHash(d.Name, &d.Spec.Template)
	revision := 1
	for _, rs := range tx.replicaSetsOf(d) {
		if rs.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == hash {
			current = rs
			continue
		}
		old = append(old, KeyOf(rs))
		revision = max(revision, revisionNumber(rs)+1)
	}
	if d.Spec.Paused {
		return current, old
	}
	if current == nil {
		current = newReplicaSet(d, hash)
		if orphan := tx.s.replicaSets.objects[KeyOf(current)]; orphan != nil {
			current = copyOf(orphan)
			current.OwnerReferences = append(current.OwnerReferences, ownerReference(d))
		}
	} else {
		current = copyOf(current)
	}
	current.Spec.MinReadySeconds = d.Spec.MinReadySeconds
	if current.Annotations == nil {
		current.Annotations = map[string]string{}
	}
	maps.Copy(current.Annotations, d.Annotations)
	delete(current.Annotations, corev1.LastAppliedConfigAnnotation)
	current.Annotations[revisionAnnotation] = strconv.Itoa(max(revision, revisionNumber(current)))
	tx.put(ResourceOf(current), current)
	return tx.s.replicaSets.objects[KeyOf(current)], old
}

func newReplicaSet(d *appsv1.Deployment, hash string) *appsv1.ReplicaSet {
	selector := d.Spec.Selector.DeepCopy()
	selector.MatchLabels = withLabel(selector.MatchLabels, hash)
	template := d.Spec.Template.DeepCopy()
	template.Labels = withLabel(template.Labels, hash)
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: d.Name + "-" + hash, Labels: template.Labels,
			OwnerReferences: []metav1.OwnerReference{ownerReference(d)},
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr.To[int32](0), MinReadySeconds: d.Spec.MinReadySeconds, Selector: selector, Template: *template,
		},
	}
}

func withLabel(labels map[string]string, hash string) map[string]string {
	out := maps.Clone(labels)
	if out == nil {
		out = map[string]string{}
	}
	out[appsv1.DefaultDeploymentUniqueLabelKey] = hash
	return out
}

// resize changes how many pods a ReplicaSet shall have.
func (tx *Tx) resize(k Key, replicas int32) {
	rs := tx.s.replicaSets.objects[k]
	if *rs.Spec.Replicas != replicas {
		c := copyOf(rs)
		c.Spec.Replicas = &replicas
		tx.put(ResourceOf(c), c)
		tx.sayScaled(rs, replicas)
	}
}

// sayScaled posts the Event of a Deployment that has changed the size of a ReplicaSet.
func (tx *Tx) sayScaled(rs *appsv1.ReplicaSet, replicas int32) {
	owner := metav1.GetControllerOfNoCopy(rs)
	if owner == nil {
		return
	}
	direction := "up"
	if replicas < *rs.Spec.Replicas {
		direction = "down"
	}
	if d, ok := tx.s.deployments.objects[Key{rs.Namespace, owner.Name}]; ok {
		tx.say(d, "ScalingReplicaSet", "Scaled %s replica set %s from %d to %d", direction, rs.Name,
			*rs.Spec.Replicas, replicas)
	}
}

func (tx *Tx) wanted(k Key) int32    { return *tx.s.replicaSets.objects[k].Spec.Replicas }
func (tx *Tx) available(k Key) int32 { return tx.s.replicaSets.objects[k].Status.AvailableReplicas }

// sumOf adds up a number over ReplicaSets.
func sumOf(sets []Key, number func(Key) int32) (n int32) {
	for _, k := range sets {
		n += number(k)
	}
	return n
}

// growNew lets the new ReplicaSet have as many pods as the Deployment's surge allows.
func (tx *Tx) growNew(d *appsv1.Deployment, current *appsv1.ReplicaSet, old []Key) {
	k, want := KeyOf(current), *d.Spec.Replicas
	room := want + maxSurge(d) - tx.wanted(k) - sumOf(old, tx.wanted)
	tx.resize(k, min(want, tx.wanted(k)+max(0, room)))
}

// shrinkOld takes pods from the old ReplicaSets, first those that are not available, as long as enough are available.
func (tx *Tx) shrinkOld(d *appsv1.Deployment, current *appsv1.ReplicaSet, old []Key) {
	k, least := KeyOf(current), *d.Spec.Replicas-maxUnavailable(d)
	all := tx.wanted(k) + sumOf(old, tx.wanted)
	spare := all - least - max(0, tx.wanted(k)-tx.available(k))
	for _, o := range old {
		take := max(0, min(spare, tx.wanted(o)-tx.available(o)))
		tx.resize(o, tx.wanted(o)-take)
		spare -= take
	}
	spare = min(spare, tx.available(k)+sumOf(old, tx.available)-least)
	for _, o := range old {
		take := max(0, min(spare, tx.wanted(o)))
		tx.resize(o, tx.wanted(o)-take)
		spare -= take
	}
}

// recreate makes new pods after the last old one is gone.
func (tx *Tx) recreate(d *appsv1.Deployment, current *appsv1.ReplicaSet, old []Key) {
	left := 0
	for _, o := range old {
		tx.resize(o, 0)
		tx.reconcileReplicaSet(o)
		left += len(slices.DeleteFunc(tx.podsOwnedBy(tx.s.replicaSets.objects[o]), isOver))
	}
	if left == 0 {
		tx.resize(KeyOf(current), *d.Spec.Replicas)
	}
}

// scalePaused lets the newest ReplicaSet that has pods make up the difference to what a paused Deployment wants.
func (tx *Tx) scalePaused(d *appsv1.Deployment, current *appsv1.ReplicaSet, old []Key) {
	all := old
	if current != nil {
		all = append(slices.Clone(old), KeyOf(current))
	}
	active := those(all, func(k Key) bool { return tx.wanted(k) > 0 })
	if len(active) == 0 {
		active = all
	}
	if len(active) == 0 {
		return
	}
	newest := active[len(active)-1]
	tx.resize(newest, max(0, tx.wanted(newest)+*d.Spec.Replicas-sumOf(all, tx.wanted)))
}

// tidyHistory deletes the oldest ReplicaSets without pods, all but revisionHistoryLimit.
func (tx *Tx) tidyHistory(d *appsv1.Deployment, old []Key) {
	empty := those(old, func(k Key) bool {
		return tx.wanted(k) == 0 && tx.s.replicaSets.objects[k].Status.Replicas == 0
	})
	for _, k := range empty[:max(0, len(empty)-int(ptr.Deref(d.Spec.RevisionHistoryLimit, 10)))] {
		tx.dropRef(ref{KindReplicaSet, k}, DeleteOptions{})
	}
}

// maxSurge returns by how many pods a rollout may exceed the replicas.
func maxSurge(d *appsv1.Deployment) int32 {
	if d.Spec.Strategy.RollingUpdate == nil {
		return 0
	}
	return int32(scaled(d.Spec.Strategy.RollingUpdate.MaxSurge, int(*d.Spec.Replicas), true))
}
