// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// reconcileStatefulSet makes pods with fixed names, NAME-0, NAME-1 and so on, each after the one before it is ready, or
// all at once with podManagementPolicy Parallel. It deletes and replaces them from the highest number.
func (tx *Tx) reconcileStatefulSet(key Key) {
	s := tx.s.statefulSets.objects[key]
	if s == nil {
		return
	}
	if s.DeletionTimestamp == nil {
		tx.removeOver(s)
		tx.numberRevision(s, &s.Spec.Template, revisionHashLabel)
		first := ordinalStart(s)
		end := first + int(*s.Spec.Replicas)
		if tx.fillOrdinals(s, first, end) && tx.cutOrdinals(s, first, end) &&
			s.Spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType {
			tx.replaceOrdinals(s, first, end)
		}
		tx.tidyStatefulRevisions(s)
	}
	tx.reportStatefulSet(s)
}

func ordinalStart(s *appsv1.StatefulSet) int {
	if s.Spec.Ordinals == nil {
		return 0
	}
	return int(s.Spec.Ordinals.Start)
}

// removeOver removes pods that have ended, for others of the same name.
func (tx *Tx) removeOver(owner Object) { tx.deletePods(those(tx.podsOwnedBy(owner), isOver)...) }

func parallel(s *appsv1.StatefulSet) bool {
	return s.Spec.PodManagementPolicy == appsv1.ParallelPodManagement
}

// ordinal returns the number at the end of a pod's name, -1 if there is none.
func ordinal(s *appsv1.StatefulSet, p *corev1.Pod) int {
	n, err := strconv.Atoi(strings.TrimPrefix(p.Name, s.Name+"-"))
	if err != nil {
		return -1
	}
	return n
}

// fillOrdinals makes the pods that are missing. It reports whether they are all there and nothing is to be waited for.
func (tx *Tx) fillOrdinals(s *appsv1.StatefulSet, first, end int) bool {
	complete := true
	for i := first; i < end; i++ {
		p := tx.s.pods.objects[Key{s.Namespace, fmt.Sprintf("%s-%d", s.Name, i)}]
		switch {
		case p == nil:
			tx.putPod(s, tx.ordinalPod(s, i))
			complete = false
		case isActive(p) && tx.isAvailable(s, p, s.Spec.MinReadySeconds):
			continue
		default:
			complete = false
		}
		if !parallel(s) {
			// A pod that is stuck with an older template may be replaced all the same.
			return p != nil && isActive(p) && !isReady(p) && !isCurrent(s, p)
		}
	}
	return complete || parallel(s)
}

// templateFor returns the template of a pod and the name of its revision: below the partition of a rolling update that
// is the one of the present pods.
func (tx *Tx) templateFor(s *appsv1.StatefulSet, i int) (*corev1.PodTemplateSpec, string) {
	if i < partitionOf(s) {
		c := tx.s.revisions.objects[Key{s.Namespace, s.Status.CurrentRevision}]
		if c != nil && metav1.IsControlledBy(c, s) {
			if t := templateOf(c); t != nil {
				return t, c.Name
			}
		}
	}
	return &s.Spec.Template, statefulRevision(s)
}

func partitionOf(s *appsv1.StatefulSet) int {
	if u := s.Spec.UpdateStrategy.RollingUpdate; u != nil {
		return int(ptr.Deref(u.Partition, 0))
	}
	return 0
}

func (tx *Tx) ordinalPod(s *appsv1.StatefulSet, i int) *corev1.Pod {
	name := fmt.Sprintf("%s-%d", s.Name, i)
	template, revision := tx.templateFor(s, i)
	p := podOf(s, template, map[string]string{
		appsv1.StatefulSetPodNameLabel:        name,
		appsv1.PodIndexLabel:                  strconv.Itoa(i),
		appsv1.ControllerRevisionHashLabelKey: revision,
	})
	p.Name, p.GenerateName = name, s.Name+"-"
	p.Spec.Hostname, p.Spec.Subdomain = name, s.Spec.ServiceName
	for _, c := range s.Spec.VolumeClaimTemplates {
		p.Spec.Volumes = slices.DeleteFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == c.Name })
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: c.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c.Name + "-" + name},
		}})
	}
	return p
}

func statefulRevision(s *appsv1.StatefulSet) string {
	return s.Name + "-" + templateHash(s.Name, &s.Spec.Template)
}

func isCurrent(s *appsv1.StatefulSet, p *corev1.Pod) bool {
	return p.Labels[appsv1.ControllerRevisionHashLabelKey] == statefulRevision(s)
}

// cutOrdinals deletes the pods whose number is too high, one by one unless in parallel. It reports whether there
// is none left.
func (tx *Tx) cutOrdinals(s *appsv1.StatefulSet, first, end int) bool {
	extra := those(tx.podsOwnedBy(s), func(p *corev1.Pod) bool { n := ordinal(s, p); return n < first || n >= end })
	slices.SortFunc(extra, func(a, b *corev1.Pod) int { return ordinal(s, b) - ordinal(s, a) })
	for _, p := range extra {
		tx.deletePods(p)
		if _, ending := tx.s.pods.objects[KeyOf(p)]; ending && !parallel(s) {
			return false
		}
	}
	return true
}

// replaceOrdinals deletes the highest pod of an older template if all above it are ready. Another takes its place.
func (tx *Tx) replaceOrdinals(s *appsv1.StatefulSet, first, end int) {
	for i := end - 1; i >= max(first, partitionOf(s)); i-- {
		p := tx.s.pods.objects[Key{s.Namespace, fmt.Sprintf("%s-%d", s.Name, i)}]
		if p == nil || isEnding(p) {
			return
		}
		if !isCurrent(s, p) {
			tx.deletePods(p)
			return
		}
		if !tx.isAvailable(s, p, s.Spec.MinReadySeconds) {
			return
		}
	}
}

func (tx *Tx) reportStatefulSet(s *appsv1.StatefulSet) {
	pods := those(tx.podsOwnedBy(s), isActive)
	ready := count(pods, isReady)
	updated := count(pods, func(p *corev1.Pod) bool { return isCurrent(s, p) })
	c := copyOf(s)
	c.Status = appsv1.StatefulSetStatus{
		ObservedGeneration: s.Generation, Replicas: int32(len(pods)), ReadyReplicas: ready,
		AvailableReplicas: tx.availableOf(s, pods, s.Spec.MinReadySeconds),
		CurrentReplicas:   int32(len(pods)) - updated, UpdatedReplicas: updated,
		CurrentRevision: s.Status.CurrentRevision, UpdateRevision: statefulRevision(s), Conditions: s.Status.Conditions,
	}
	if c.Status.CurrentRevision == "" || updated == *s.Spec.Replicas && ready == updated {
		c.Status.CurrentRevision = c.Status.UpdateRevision
	}
	if c.Status.CurrentRevision == c.Status.UpdateRevision {
		c.Status.CurrentReplicas = updated
	}
	tx.put(ResourceOf(c), c)
}
