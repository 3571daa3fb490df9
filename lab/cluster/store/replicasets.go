// SPDX-License-Identifier: Apache-2.0

package store

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// reconcileReplicaSet makes as many pods as a ReplicaSet wants, or deletes those that it does not.
func (tx *Tx) reconcileReplicaSet(key Key) {
	rs, ok := tx.s.replicaSets.objects[key]
	if !ok {
		return
	}
	if rs.DeletionTimestamp == nil {
		tx.adopt(rs, rs.Spec.Selector)
		want := int(*rs.Spec.Replicas)
		pods := tx.keepBest(those(tx.podsOwnedBy(rs), isActive), want)
		for n := len(pods); n < want; n++ {
			tx.createPod(rs, podOf(rs, &rs.Spec.Template, nil), rs.Name+"-")
		}
	}
	pods := those(tx.podsOwnedBy(rs), isActive)
	ready := count(pods, isReady)
	c := copyOf(rs)
	c.Status = appsv1.ReplicaSetStatus{
		Replicas: int32(len(pods)), FullyLabeledReplicas: int32(len(pods)), ReadyReplicas: ready,
		AvailableReplicas:  tx.availableOf(rs, pods, rs.Spec.MinReadySeconds),
		ObservedGeneration: rs.Generation, Conditions: rs.Status.Conditions,
	}
	tx.put(ResourceOf(c), c)
}

// keepBest deletes all but the best n pods.
func (tx *Tx) keepBest(pods []*corev1.Pod, n int) []*corev1.Pod {
	slices.SortStableFunc(pods, betterToKeep)
	for len(pods) > n {
		tx.deletePods(pods[len(pods)-1])
		pods = pods[:len(pods)-1]
	}
	return pods
}

// betterToKeep orders ready pods before others and older pods before younger, so that the last is the one to give up.
func betterToKeep(a, b *corev1.Pod) int {
	if ra, rb := isReady(a), isReady(b); ra != rb {
		if ra {
			return -1
		}
		return 1
	}
	return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
}
