// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// controller makes objects of those of a kind.
type controller struct {
	kind      Kind
	reconcile func(*Tx, Key)
}

// controllers are those of the workloads, in the order in which they run, and the one that counts who may go.
func controllers() []controller {
	return []controller{
		{KindDeployment, (*Tx).reconcileDeployment},
		{KindReplicaSet, (*Tx).reconcileReplicaSet},
		{KindDaemonSet, (*Tx).reconcileDaemonSet},
		{KindStatefulSet, (*Tx).reconcileStatefulSet},
		{KindJob, (*Tx).reconcileJob},
		{KindPodDisruptionBudget, (*Tx).reconcileBudget},
	}
}

// touchedWorkload notes that the controllers of an object, of its owner and of the owner's owner have to look at it.
func (tx *Tx) touchedWorkload(k Kind, o Object) {
	if set, ok := tx.work[k]; ok {
		set[KeyOf(o)] = struct{}{}
	}
	c := metav1.GetControllerOfNoCopy(o)
	if c == nil {
		return
	}
	set, ok := tx.work[Kind(c.Kind)]
	if !ok {
		return
	}
	key := Key{o.GetNamespace(), c.Name}
	set[key] = struct{}{}
	if owner, ok := tx.s.tables[Kind(c.Kind)].get(key); ok {
		if c := metav1.GetControllerOfNoCopy(owner); c != nil && tx.work[Kind(c.Kind)] != nil {
			tx.work[Kind(c.Kind)][Key{key.Namespace, c.Name}] = struct{}{}
		}
	}
}

// podsOwnedBy lists the pods of a controller in the order of their names.
func (tx *Tx) podsOwnedBy(owner Object) []*corev1.Pod {
	keys := keyset{}
	for r := range tx.s.index.owned[owner.GetUID()] {
		if r.kind == KindPod {
			keys[r.key] = struct{}{}
		}
	}
	var out []*corev1.Pod
	for _, k := range sorted(keys) {
		out = append(out, tx.s.pods.objects[k])
	}
	return out
}

// isActive reports whether a pod counts for its controller: it is neither over nor about to be.
func isActive(p *corev1.Pod) bool { return p.DeletionTimestamp == nil && !isOver(p) }

// isEnding reports whether a pod is being deleted.
func isEnding(p *corev1.Pod) bool { return p.DeletionTimestamp != nil }

// those returns the elements of a list for which is says so, in a new list.
func those[T any](list []T, is func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), func(e T) bool { return !is(e) })
}

func count[T any](list []T, is func(T) bool) int32 { return int32(len(those(list, is))) }

// adopt makes a controller the owner of pods that its selector selects and that have no controller.
func (tx *Tx) adopt(owner Object, selector *metav1.LabelSelector) {
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil || selector == nil || len(selector.MatchLabels) == 0 {
		return
	}
	some := slices.Min(slices.Collect(maps.Keys(selector.MatchLabels)))
	candidates := tx.s.index.podsByLabel[label{owner.GetNamespace(), some, selector.MatchLabels[some]}]
	for _, k := range sorted(candidates) {
		p := tx.s.pods.objects[k]
		if metav1.GetControllerOfNoCopy(p) == nil && isActive(p) && s.Matches(labels.Set(p.Labels)) {
			c := copyOf(p)
			c.OwnerReferences = append(slices.Clone(c.OwnerReferences), ownerReference(owner))
			tx.put(ResourceOf(c), c)
		}
	}
}

func ownerReference(owner Object) metav1.OwnerReference {
	r := ResourceOf(owner)
	return *metav1.NewControllerRef(owner, r.groupKind().WithVersion(r.Version))
}

// podOf returns a pod of a template, without a name.
func podOf(owner Object, t *corev1.PodTemplateSpec, more map[string]string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: *t.ObjectMeta.DeepCopy(), Spec: *t.Spec.DeepCopy()}
	p.Namespace = owner.GetNamespace()
	if p.Labels == nil {
		p.Labels = map[string]string{}
	}
	maps.Copy(p.Labels, more)
	p.OwnerReferences = []metav1.OwnerReference{ownerReference(owner)}
	defaultPod(p)
	return p
}

// createPod stores a pod under a name of its own, which depends on how many pods its owner has made.
func (tx *Tx) createPod(owner Object, p *corev1.Pod, prefix string) {
	p.GenerateName = prefix
	maker := ref{ResourceOf(owner).Kind, KeyOf(owner)}
	for taken := true; taken; {
		serial := tx.s.serials[maker]
		tx.s.serials[maker]++
		p.Name = prefix + suffix(fmt.Sprintf("%s%d", prefix, serial))
		_, taken = tx.s.pods.objects[KeyOf(p)]
	}
	tx.putPod(owner, p)
}

// deletePods deletes pods of a controller as "kubectl delete" does.
func (tx *Tx) deletePods(pods ...*corev1.Pod) {
	for _, p := range pods {
		if p.DeletionTimestamp == nil {
			tx.dropRef(ref{KindPod, KeyOf(p)}, DeleteOptions{})
			if c := metav1.GetControllerOfNoCopy(p); c != nil {
				if owner, ok := tx.s.find(Kind(c.Kind), p.Namespace, c.Name); ok {
					tx.sayPod(owner, "delete", p)
				}
			}
		}
	}
}

// templateHash returns a name for a template, such that different templates of an owner have different ones.
func templateHash(owner string, t *corev1.PodTemplateSpec) string {
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // a type of k8s.io/api that does not marshal
	}
	return suffix(string(text)) + suffix(string(text)+owner)
}
