// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// revisionHashLabel has the hash of a StatefulSet's template on its ControllerRevisions
// (pkg/controller/history/controller_history.go). Those of DaemonSets have it as their pods do.
const revisionHashLabel = "controller.kubernetes.io/hash"

// revisionsOf lists the ControllerRevisions of a DaemonSet or StatefulSet, the oldest first.
func (tx *Tx) revisionsOf(owner Object) []*appsv1.ControllerRevision {
	var out []*appsv1.ControllerRevision
	for r := range tx.s.index.owned[owner.GetUID()] {
		if r.kind == KindControllerRevision {
			out = append(out, tx.s.revisions.objects[r.key])
		}
	}
	slices.SortFunc(out, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// numberRevision makes the ControllerRevision of a template, or gives that of an earlier rollout the newest number.
func (tx *Tx) numberRevision(owner Object, t *corev1.PodTemplateSpec, label string) {
	hash := templateHash(owner.GetName(), t)
	c := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: owner.GetNamespace(), Name: owner.GetName() + "-" + hash, Labels: map[string]string{},
			Annotations:     maps.Clone(owner.GetAnnotations()),
			OwnerReferences: []metav1.OwnerReference{ownerReference(owner)},
		},
		Data: runtime.RawExtension{Raw: templatePatch(t)}, Revision: 1,
	}
	maps.Copy(c.Labels, t.Labels)
	c.Labels[label] = hash
	delete(c.Annotations, corev1.LastAppliedConfigAnnotation)
	for _, other := range tx.revisionsOf(owner) {
		if other.Name == c.Name {
			c.Revision = max(c.Revision, other.Revision)
		} else {
			c.Revision = max(c.Revision, other.Revision+1)
		}
	}
	tx.replace(c)
}

// templatePatch returns the patch that "kubectl rollout undo" sends to return to a template. kubectl compares it with
// the present template byte by byte.
func templatePatch(t *corev1.PodTemplateSpec) []byte {
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // a type of k8s.io/api that does not marshal
	}
	template := map[string]any{}
	if err := json.Unmarshal(text, &template); err != nil {
		panic(err) // just made
	}
	template["$patch"] = "replace"
	text, err = json.Marshal(map[string]any{"spec": map[string]any{"template": template}})
	if err != nil {
		panic(err) // made of what was just read
	}
	return text
}

// templateOf returns the template of a ControllerRevision, or nil if it holds something else.
func templateOf(c *appsv1.ControllerRevision) *corev1.PodTemplateSpec {
	var data struct {
		Spec struct{ Template *corev1.PodTemplateSpec }
	}
	if json.Unmarshal(c.Data.Raw, &data) != nil {
		return nil
	}
	return data.Spec.Template
}

// tidyRevisions deletes the oldest ControllerRevisions that are not in use, all but limit.
func (tx *Tx) tidyRevisions(owner Object, limit *int32, inUse func(*appsv1.ControllerRevision) bool) {
	old := those(tx.revisionsOf(owner), func(c *appsv1.ControllerRevision) bool { return !inUse(c) })
	for _, c := range old[:max(0, len(old)-int(ptr.Deref(limit, 10)))] {
		tx.dropRef(ref{KindControllerRevision, KeyOf(c)}, DeleteOptions{})
	}
}

// tidyDaemonRevisions keeps the revision of the present template, and those of pods.
func (tx *Tx) tidyDaemonRevisions(d *appsv1.DaemonSet) {
	used := map[string]bool{d.Name + "-" + templateHash(d.Name, &d.Spec.Template): true}
	for _, p := range tx.podsOwnedBy(d) {
		used[d.Name+"-"+p.Labels[appsv1.ControllerRevisionHashLabelKey]] = true
	}
	tx.tidyRevisions(d, d.Spec.RevisionHistoryLimit, func(c *appsv1.ControllerRevision) bool { return used[c.Name] })
}

// tidyStatefulRevisions keeps the revisions of the status, and those of pods.
func (tx *Tx) tidyStatefulRevisions(s *appsv1.StatefulSet) {
	used := map[string]bool{statefulRevision(s): true, s.Status.CurrentRevision: true}
	for _, p := range tx.podsOwnedBy(s) {
		used[p.Labels[appsv1.ControllerRevisionHashLabelKey]] = true
	}
	tx.tidyRevisions(s, s.Spec.RevisionHistoryLimit, func(c *appsv1.ControllerRevision) bool { return used[c.Name] })
}

// admitRevision checks a ControllerRevision, whose data never changes.
func admitRevision(c *appsv1.ControllerRevision, old Object) field.ErrorList {
	path := field.NewPath("data")
	errs := apivalidation.ValidateNonnegativeField(c.Revision, field.NewPath("revision"))
	if len(c.Data.Raw) == 0 && c.Data.Object == nil {
		errs = append(errs, field.Required(path, "data is mandatory"))
	}
	if old != nil && !equality.Semantic.DeepEqual(c.Data, old.(*appsv1.ControllerRevision).Data) {
		bytes := fmt.Sprintf("%d bytes", len(c.Data.Raw))
		errs = append(errs, field.Invalid(path, bytes, apivalidation.FieldImmutableErrorMsg))
	}
	return errs
}
