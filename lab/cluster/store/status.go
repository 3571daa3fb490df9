// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Object returns Store.Object inside a change: it includes the changes made so far.
func (tx *Tx) Object(kind Kind, namespace, name string) (Object, bool) {
	r, err := ResourceNamed(string(kind))
	if err != nil {
		return nil, false
	}
	return tx.s.tables[r.Kind].get(r.key(namespace, name))
}

// ApplyStatus stores the status of an object and nothing else of it, as a write to the status of a resource does in the
// Kubernetes API. A resourceVersion, if given, must be the present one.
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
	if errs := admitStatus(obj); len(errs) > 0 {
		return tx.fail(apierrors.NewInvalid(r.groupKind(), key.String(), errs))
	}
	tx.put(r, obj)
	return nil
}

// samePreconditions checks the resourceVersion and uid that a caller gives, if any, against those of the stored object.
func samePreconditions(r *Resource, in, old Object) error {
	if v := in.GetResourceVersion(); v != "" && v != old.GetResourceVersion() {
		return apierrors.NewConflict(r.groupResource(), KeyOf(old).String(),
			fmt.Errorf("the object has been modified: it is at resourceVersion %s, not %s", old.GetResourceVersion(), v))
	}
	if uid := in.GetUID(); uid != "" && uid != old.GetUID() {
		return apierrors.NewConflict(r.groupResource(), KeyOf(old).String(),
			fmt.Errorf("uid %s is not %s", uid, old.GetUID()))
	}
	return nil
}
