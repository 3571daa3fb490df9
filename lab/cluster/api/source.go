// SPDX-License-Identifier: Apache-2.0

package api

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/viplab/viplab/lab/cluster/store"
)

// reader is where the objects of a resource come from. Objects that it hands out are never changed.
type reader interface {
	// list is every object, and the revision at which they are so.
	list() ([]store.Object, uint64)
	get(store.Key) (store.Object, bool)
	// follow begins to read changes after a revision.
	follow(after uint64) (cursor, error)
}

// cursor reads the changes of a resource, in order.
type cursor interface {
	// next returns the changes since the last call, without waiting, or store.ErrTooOld if some are forgotten.
	next() ([]store.Event, error)
	// revision is how far next has read.
	revision() uint64
	// changed is closed once there may be something after revision.
	changed() <-chan struct{}
}

// writer changes the objects of a resource.
type writer interface {
	// edit replaces an object by what change returns. It returns the object as it was stored. One that was deleted is
	// returned as it was, or with its deletion timestamp if it is still there.
	edit(key store.Key, how editOptions, change edit) (store.Object, error)
}

// edit returns the replacement of an object, or nil to delete it. The old object is nil if there is none; edit must not
// change it.
type edit = func(old store.Object) (store.Object, error)

// editOptions holds the options of an edit.
type editOptions struct {
	status bool // only the status is stored
	dryRun bool // everything except storing is done
	delete store.DeleteOptions
}

// stored is a resource that the store holds.
type stored struct {
	store *store.Store
	kind  store.Kind
}

func (t stored) list() ([]store.Object, uint64) {
	s := t.store.Snapshot()
	return s.Objects(t.kind), s.Revision
}

func (t stored) get(k store.Key) (store.Object, bool) {
	return t.store.Object(t.kind, k.Namespace, k.Name)
}

func (t stored) follow(after uint64) (cursor, error) {
	return &storeCursor{store: t.store, kinds: []store.Kind{t.kind}, at: after}, nil
}

// storeCursor reads the changes of some kinds of the store.
type storeCursor struct {
	store *store.Store
	kinds []store.Kind
	at    uint64
}

func (c *storeCursor) revision() uint64 { return c.at }

func (c *storeCursor) changed() <-chan struct{} { return c.store.Changed(c.at) }

func (c *storeCursor) next() ([]store.Event, error) {
	events, err := c.store.EventsSince(c.at)
	if err != nil {
		return nil, err
	}
	var out []store.Event
	for _, e := range events {
		c.at = e.Revision
		if slices.Contains(c.kinds, e.Kind) {
			out = append(out, e)
		}
	}
	return out, nil
}

// errDryRun makes the store forget a change.
type errDryRun struct{}

func (errDryRun) Error() string { return "dry run" }

func (t stored) edit(key store.Key, how editOptions, change edit) (store.Object, error) {
	var result store.Object
	err := t.store.Do(func(tx *store.Tx) error {
		old, ok := tx.Object(t.kind, key.Namespace, key.Name)
		if !ok {
			old = nil
		}
		obj, err := change(old)
		switch {
		case err != nil:
			return err
		case obj == nil:
			err = tx.DeleteWith(t.kind, key.Namespace, key.Name, how.delete)
			if result, ok = tx.Object(t.kind, key.Namespace, key.Name); !ok || result.GetUID() != old.GetUID() {
				result = old
			}
		default:
			result, err = t.put(tx, obj, old, how)
		}
		if err == nil && how.dryRun {
			return errDryRun{}
		}
		return err
	})
	if err == (errDryRun{}) {
		err = nil
	}
	return result, err
}

func (t stored) put(tx *store.Tx, obj, old store.Object, how editOptions) (store.Object, error) {
	if ns := obj.GetNamespace(); old == nil && ns != "" {
		if _, ok := tx.Object(store.KindNamespace, "", ns); !ok {
			return nil, notFound(schema.GroupResource{Resource: "namespaces"}, ns)
		}
	}
	var err error
	if how.status {
		err = tx.ApplyStatus(obj)
	} else {
		err = tx.Apply(obj)
	}
	if err != nil {
		return nil, err
	}
	result, _ := tx.Object(t.kind, obj.GetNamespace(), obj.GetName())
	return result, nil
}
