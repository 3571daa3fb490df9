// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Editor is where objects can be changed: a *Store, or a *Tx inside Store.Do.
type Editor interface {
	edit(func(*Tx) error) error
}

func (s *Store) edit(do func(*Tx) error) error { return s.Do(do) }
func (tx *Tx) edit(do func(*Tx) error) error   { return tx.fail(do(tx)) }

// Update calls change with a copy of an object, validates the copy and stores it. change must not change the status.
func Update[T Object](in Editor, namespace, name string, change func(T)) error {
	return edit(in, namespace, name, change, func(tx *Tx, r *Resource, obj, old T) error {
		if r.Status && !samePart(old, obj, isStatus) {
			return fmt.Errorf("%s %q: the status is changed with UpdateStatus", r.Kind, KeyOf(old))
		}
		return tx.save(r, obj, old)
	})
}

// UpdateStatus calls change with a copy of an object and stores the copy. change may change only the status.
func UpdateStatus[T Object](in Editor, namespace, name string, change func(T)) error {
	return edit(in, namespace, name, change, func(tx *Tx, r *Resource, obj, old T) error {
		if !samePart(old, obj, func(field string) bool { return field != "Status" }) {
			return fmt.Errorf("%s %q: UpdateStatus is for the status alone", r.Kind, KeyOf(old))
		}
		if errs := admitStatus(obj); len(errs) > 0 {
			return apierrors.NewInvalid(r.groupKind(), KeyOf(obj).String(), errs)
		}
		tx.put(r, obj)
		return nil
	})
}

func edit[T Object](in Editor, namespace, name string, change func(T),
	save func(tx *Tx, r *Resource, obj, old T) error) error {
	var none T
	r := ResourceOf(none)
	if r == nil {
		return fmt.Errorf("type %T is not known", none)
	}
	key := r.key(namespace, name)
	return in.edit(func(tx *Tx) error {
		found, ok := tx.s.tables[r.Kind].get(key)
		if !ok {
			return apierrors.NewNotFound(r.groupResource(), key.String())
		}
		old := found.(T)
		obj := copyOf(old)
		change(obj)
		if !sameIdentity(obj, old) {
			return fmt.Errorf("%s %q: name, namespace, uid and timestamps are not to be changed", r.Kind, key)
		}
		return save(tx, r, obj, old)
	})
}

func sameIdentity(a, b Object) bool {
	ca, cb := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	return KeyOf(a) == KeyOf(b) && a.GetUID() == b.GetUID() && ca.Equal(&cb) &&
		equality.Semantic.DeepEqual(a.GetDeletionTimestamp(), b.GetDeletionTimestamp())
}

// Terminate begins the graceful end of a pod, as "kubectl delete" does: the pod gets a deletion timestamp and stays
// until Delete. If serving is true, the pod stays Ready until then, so that its endpoints are serving and terminating.
func (s *Store) Terminate(namespace, pod string, serving bool) error {
	return s.Do(func(tx *Tx) error { return tx.Terminate(namespace, pod, serving) })
}

// Terminate is Store.Terminate inside a change.
func (tx *Tx) Terminate(namespace, pod string, serving bool) error {
	r := ResourceOf((*corev1.Pod)(nil))
	found, ok := tx.s.tables[KindPod].get(r.key(namespace, pod))
	if !ok {
		return tx.fail(apierrors.NewNotFound(r.groupResource(), r.key(namespace, pod).String()))
	}
	p := copyOf(found.(*corev1.Pod))
	if p.DeletionTimestamp == nil {
		grace := ptr.Deref(p.Spec.TerminationGracePeriodSeconds, 30)
		end := metav1.NewTime(tx.now.Add(time.Duration(grace) * time.Second))
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &end, &grace
	}
	if !serving {
		setCondition(p, corev1.PodReady, corev1.ConditionFalse, tx.now)
	} else if !isReady(p) {
		return tx.fail(fmt.Errorf("Pod %q: it is not ready, so it cannot go on serving while it terminates", KeyOf(p)))
	}
	tx.put(r, p)
	return nil
}

// Object is Store.Object inside a change: it includes the changes made so far.
func (tx *Tx) Object(kind Kind, namespace, name string) (Object, bool) {
	return tx.s.find(kind, namespace, name)
}

// ApplyStatus stores the status of an object, and its labels, annotations and finalizers, as a write to the subresource
// status does. A resourceVersion, if given, must be the current one.
func (tx *Tx) ApplyStatus(in Object) error {
	r := ResourceOf(in)
	if r == nil || !r.Status {
		return tx.fail(fmt.Errorf("type %T has no status", in))
	}
	key := r.key(in.GetNamespace(), in.GetName())
	old, ok := tx.s.tables[r.Kind].get(key)
	if !ok {
		return tx.fail(apierrors.NewNotFound(r.groupResource(), key.String()))
	}
	if err := samePreconditions(r, in, old); err != nil {
		return tx.fail(err)
	}
	obj := copyOf(old)
	copyStatus(obj, in)
	if r.Kind != KindDeployment { // pkg/registry/apps/deployment/strategy.go keeps the old ones
		obj.SetLabels(maps.Clone(in.GetLabels()))
	}
	obj.SetAnnotations(maps.Clone(in.GetAnnotations()))
	obj.SetFinalizers(slices.Clone(in.GetFinalizers()))
	if errs := append(tx.validateMeta(obj), admitStatus(obj)...); len(errs) > 0 {
		return tx.fail(apierrors.NewInvalid(r.groupKind(), key.String(), errs))
	}
	tx.put(r, obj)
	tx.goIfReady(r, key)
	return nil
}

// samePreconditions checks the resourceVersion and uid that a caller gives, if any, against those of the stored object.
func samePreconditions(r *Resource, in, old Object) error {
	var conflict error
	if want, is := in.GetResourceVersion(), old.GetResourceVersion(); want != "" && want != is {
		conflict = fmt.Errorf("the object has been modified: it is at resourceVersion %s, not %s", is, want)
	} else if want, is := in.GetUID(), old.GetUID(); want != "" && want != is {
		conflict = fmt.Errorf("uid %s is not %s", want, is)
	}
	if conflict == nil {
		return nil
	}
	return apierrors.NewConflict(r.groupResource(), KeyOf(old).String(), conflict)
}
