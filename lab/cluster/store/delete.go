// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

// DeleteOptions says how an object is deleted. The zero value is what "kubectl delete" asks for.
type DeleteOptions struct {
	// GracePeriod is how many seconds a pod's containers get to end, if Config.GracefulDeletion is set: nil means the
	// pod's own terminationGracePeriodSeconds, and 0 removes the pod at once.
	GracePeriod *int64
	// Propagation decides about the objects that the object owns: with Background, also the zero value, they are
	// deleted after it; with Foreground, before it; with Orphan, they stay.
	Propagation metav1.DeletionPropagation
}

// Delete deletes an object and what belongs to it: everything in a namespace, the pods of a controller or Node, the
// slices made for a Service. Hand-written slices stay, as they do in Kubernetes.
//
// The object may stay for a while, with a deletion timestamp: until its finalizers are gone, until what it owns is gone
// with Foreground, until a namespace is empty, and until a kubelet has called RemovePod with Config.GracefulDeletion.
func (s *Store) Delete(kind Kind, namespace, name string) error {
	return s.Do(func(tx *Tx) error { return tx.Delete(kind, namespace, name) })
}

// Delete is Store.Delete inside a change.
func (tx *Tx) Delete(kind Kind, namespace, name string) error {
	return tx.DeleteWith(kind, namespace, name, DeleteOptions{})
}

// DeleteWith is Delete with options.
func (tx *Tx) DeleteWith(kind Kind, namespace, name string, o DeleteOptions) error {
	r, err := ResourceNamed(string(kind))
	if err != nil {
		return tx.fail(err)
	}
	key := r.key(namespace, name)
	old, ok := tx.s.tables[r.Kind].get(key)
	if !ok {
		return tx.fail(apierrors.NewNotFound(r.groupResource(), key.String()))
	}
	switch r.Kind {
	case KindNamespace:
		if name == "default" || name == "kube-system" {
			return tx.fail(apierrors.NewForbidden(corev1.Resource("namespaces"), name,
				errors.New("this namespace may not be deleted")))
		}
		tx.emptyNamespace(name)
	case KindNode:
		for _, k := range sorted(tx.s.index.podsByNode[name]) {
			tx.removeRef(ref{KindPod, k}) // its kubelet is gone
		}
	}
	tx.drop(r, old, o)
	return nil
}

// drop removes an object, or marks it as being deleted if something has to happen before.
func (tx *Tx) drop(r *Resource, old Object, o DeleteOptions) {
	obj := copyOf(old)
	switch o.Propagation {
	case metav1.DeletePropagationOrphan:
		tx.Orphan(old)
	case metav1.DeletePropagationForeground:
		if len(tx.s.index.owned[old.GetUID()]) > 0 && !slices.Contains(obj.GetFinalizers(),
			metav1.FinalizerDeleteDependents) {
			obj.SetFinalizers(append(slices.Clone(obj.GetFinalizers()), metav1.FinalizerDeleteDependents))
		}
	}
	grace := tx.graceOf(obj, o)
	end := metav1.NewTime(tx.now.Add(time.Duration(grace) * time.Second))
	if was := obj.GetDeletionTimestamp(); was == nil || end.Before(was) {
		obj.SetDeletionTimestamp(&end)
	}
	if was := obj.GetDeletionGracePeriodSeconds(); was == nil || grace < *was {
		obj.SetDeletionGracePeriodSeconds(&grace)
	}
	if ns, ok := obj.(*corev1.Namespace); ok {
		ns.Status.Phase = corev1.NamespaceTerminating
	}
	if tx.mayGo(obj) {
		tx.remove(r, old)
		return
	}
	tx.put(r, obj)
	if c, ok := obj.(*networkingv1.ServiceCIDR); ok {
		tx.endRange(c)
	}
	if slices.Contains(obj.GetFinalizers(), metav1.FinalizerDeleteDependents) {
		for _, owned := range tx.ownedBy(old) {
			tx.dropRef(owned, DeleteOptions{Propagation: metav1.DeletePropagationForeground})
		}
	}
}

func (tx *Tx) dropRef(o ref, how DeleteOptions) {
	r, _ := ResourceNamed(string(o.kind))
	if old, ok := tx.s.tables[o.kind].get(o.key); ok {
		tx.drop(r, old, how)
	}
}

// graceOf returns how many seconds the kubelet has to end a pod. It is 0 for what no kubelet runs.
func (tx *Tx) graceOf(obj Object, o DeleteOptions) int64 {
	p, ok := obj.(*corev1.Pod)
	if !ok || !tx.s.graceful || p.Spec.NodeName == "" || isOver(p) {
		return 0
	}
	grace := ptr.Deref(p.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	if o.GracePeriod != nil {
		grace = *o.GracePeriod
	}
	if grace < 0 {
		grace = 1
	}
	return grace
}

// mayGo reports whether nothing delays the removal of an object that is being deleted.
func (tx *Tx) mayGo(obj Object) bool {
	if obj.GetDeletionTimestamp() == nil || len(obj.GetFinalizers()) > 0 {
		return false
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		return ptr.Deref(o.DeletionGracePeriodSeconds, 0) == 0
	case *corev1.Namespace:
		return tx.isEmpty(o.Name)
	}
	return true
}

func (tx *Tx) isEmpty(namespace string) bool {
	for _, t := range tx.s.tables {
		if len(t.inNamespace(namespace)) > 0 {
			return false
		}
	}
	return true
}

// goIfReady removes an object that is being deleted and that nothing delays any more.
func (tx *Tx) goIfReady(r *Resource, key Key) {
	if obj, ok := tx.s.tables[r.Kind].get(key); ok && tx.mayGo(obj) {
		tx.remove(r, obj)
	}
}

// emptyNamespace deletes everything in a namespace. Controllers look at it later, when they are gone themselves.
func (tx *Tx) emptyNamespace(name string) {
	for _, r := range resources {
		for _, k := range tx.s.tables[r.Kind].inNamespace(name) {
			tx.dropRef(ref{r.Kind, k}, DeleteOptions{})
		}
	}
}

// remove removes an object from the tables, deletes what it owned, and looks whether others waited for its end.
func (tx *Tx) remove(r *Resource, old Object) {
	owned := tx.ownedBy(old)
	tx.write(Event{Type: watch.Deleted, Kind: r.Kind, Object: copyOf(old), Old: old})
	for _, o := range owned {
		tx.abandon(o, old.GetUID())
	}
	for _, owner := range old.GetOwnerReferences() {
		tx.endForeground(old.GetNamespace(), owner)
	}
	if ns := tx.s.namespaces.objects[Key{"", old.GetNamespace()}]; ns != nil && ns.DeletionTimestamp != nil {
		tx.goIfReady(ResourceOf(ns), KeyOf(ns))
	}
}

// abandon deletes an object one of whose owners is gone, or only forgets that owner if there is another.
func (tx *Tx) abandon(o ref, owner types.UID) {
	old, ok := tx.s.tables[o.kind].get(o.key)
	if !ok {
		return
	}
	others := slices.ContainsFunc(old.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
		found, ok := tx.s.find(Kind(ref.Kind), old.GetNamespace(), ref.Name)
		return ref.UID != owner && ok && found.GetUID() == ref.UID
	})
	if others {
		tx.disown(old, owner)
		return
	}
	tx.dropRef(o, DeleteOptions{})
}

// endForeground removes an owner that waits for the objects that it owns, after the last of them.
func (tx *Tx) endForeground(namespace string, owner metav1.OwnerReference) {
	old, ok := tx.s.find(Kind(owner.Kind), namespace, owner.Name)
	if !ok || old.GetUID() != owner.UID || old.GetDeletionTimestamp() == nil ||
		len(tx.s.index.owned[owner.UID]) > 0 {
		return
	}
	obj := copyOf(old)
	obj.SetFinalizers(slices.DeleteFunc(obj.GetFinalizers(), func(f string) bool {
		return f == metav1.FinalizerDeleteDependents
	}))
	tx.put(ResourceOf(obj), obj)
	tx.goIfReady(ResourceOf(obj), KeyOf(obj))
}

// Orphan removes an owner from the objects that it owns, so that they survive its deletion.
func (tx *Tx) Orphan(owner Object) {
	for _, o := range tx.ownedBy(owner) {
		old, _ := tx.s.tables[o.kind].get(o.key)
		tx.disown(old, owner.GetUID())
	}
}

func (tx *Tx) disown(old Object, owner types.UID) {
	obj := copyOf(old)
	obj.SetOwnerReferences(slices.DeleteFunc(obj.GetOwnerReferences(), func(r metav1.OwnerReference) bool {
		return r.UID == owner
	}))
	tx.put(ResourceOf(obj), obj)
}

// RemovePod removes a pod that is being deleted and whose containers have ended: it is the last step of a graceful
// deletion, for kubelets. It does nothing if the pod is gone, or another of its name is there.
func (s *Store) RemovePod(namespace, name string, uid types.UID) error {
	return s.Do(func(tx *Tx) error {
		p := tx.s.pods.objects[Key{namespace, name}]
		if p == nil || p.UID != uid || p.DeletionTimestamp == nil {
			return nil
		}
		c := copyOf(p)
		c.DeletionGracePeriodSeconds = ptr.To[int64](0)
		if tx.mayGo(c) {
			tx.remove(ResourceOf(p), p)
		} else {
			tx.put(ResourceOf(c), c)
		}
		return nil
	})
}

// admitIn refuses new objects in a namespace that is being deleted.
func (tx *Tx) admitIn(r *Resource, key Key) error {
	ns := tx.s.namespaces.objects[Key{"", key.Namespace}]
	if ns == nil || ns.DeletionTimestamp == nil {
		return nil
	}
	err := apierrors.NewForbidden(r.groupResource(), key.String(),
		errors.New("unable to create new content in namespace "+ns.Name+" because it is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: corev1.NamespaceTerminatingCause, Message: "namespace " + ns.Name + " is being terminated",
		Field: "metadata.namespace",
	}}
	return err
}
