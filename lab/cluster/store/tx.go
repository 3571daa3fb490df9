// SPDX-License-Identifier: Apache-2.0

package store

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// Tx is a change of the store inside Store.Do. It takes effect as a whole or not at all.
type Tx struct {
	s       *Store
	now     metav1.Time // in whole seconds, as objects have it
	time    time.Time
	base    uint64  // revision before the first change
	events  []Event // oldest first
	records []*corev1.Event
	failed  error // of the first operation that failed: there is nothing to commit any more

	// What the controllers have to look at before the commit.
	services, endpoints keyset
	addresses           keyset // ClusterIPs, as names
	namespaces          keyset
	work                map[Kind]keyset // workloads
	schedule            bool
	wakeups             map[ref]time.Time // when they have to look again
	settling            bool              // the controllers are writing
}

// Do runs several operations as one: if do or any of them returns an error, none takes effect. The Tx must not be used
// after do has returned, nor the Store by do.
func (s *Store) Do(do func(*Tx) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	tx := &Tx{
		s: s, time: s.now(), base: s.revision, wakeups: map[ref]time.Time{},
		services: keyset{}, endpoints: keyset{}, addresses: keyset{}, namespaces: keyset{}, work: map[Kind]keyset{},
	}
	tx.now = metav1.NewTime(tx.time).Rfc3339Copy()
	for _, c := range controllers() {
		tx.work[c.kind] = keyset{}
	}
	committed := false
	defer func() {
		if !committed { // an error, or a panic of do
			tx.rollback()
		}
	}()
	if err := do(tx); err != nil {
		return err
	}
	if tx.failed != nil {
		return tx.failed
	}
	tx.settle()
	committed = true
	if len(tx.events) > 0 {
		s.history.add(tx.events)
		close(s.changed)
		s.changed = make(chan struct{})
	}
	s.records.add(tx.records...)
	s.arm(tx.wakeups)
	return nil
}

func (tx *Tx) rollback() {
	for _, e := range slices.Backward(tx.events) {
		tx.s.tables[e.Kind].set(KeyOf(e.Object), e.Old)
		tx.s.index.replace(e.Kind, e.After(), e.Old)
	}
	tx.s.revision = tx.base
}

// fail remembers that an operation failed, so that a Do that ignores the error does not commit half a change.
func (tx *Tx) fail(err error) error {
	if err != nil && tx.failed == nil {
		tx.failed = err
	}
	return err
}

// put writes an object into the tables, unless it equals the stored one. There is no other way in.
func (tx *Tx) put(r *Resource, obj Object) {
	key := KeyOf(obj)
	r.SetTypeMeta(obj)
	old, existed := tx.s.tables[r.Kind].get(key)
	if !existed {
		obj.SetGeneration(1)
		obj.SetCreationTimestamp(tx.now)
		obj.SetUID(newUID(r.Kind, key, tx.s.revision+1))
		tx.write(Event{Type: watch.Added, Kind: r.Kind, Object: obj})
		return
	}
	obj.SetResourceVersion(old.GetResourceVersion())
	obj.SetGeneration(old.GetGeneration())
	if !samePart(old, obj, isSpec) {
		obj.SetGeneration(old.GetGeneration() + 1)
	} else if samePart(old, obj, func(field string) bool { return !isSpec(field) }) {
		return
	}
	tx.write(Event{Type: watch.Modified, Kind: r.Kind, Object: obj, Old: old})
}

// replace stores an object that a controller has made from scratch, in the place of the one of its name, if any.
func (tx *Tx) replace(obj Object) {
	r := ResourceOf(obj)
	if old, ok := tx.s.tables[r.Kind].get(KeyOf(obj)); ok {
		keepMeta(obj, old)
	}
	tx.put(r, obj)
}

func (tx *Tx) ownedBy(o Object) []ref {
	return slices.SortedFunc(maps.Keys(tx.s.index.owned[o.GetUID()]),
		func(a, b ref) int { return compareKeys(a.key, b.key) })
}

func (tx *Tx) removeRef(o ref) {
	r, _ := ResourceNamed(string(o.kind))
	if old, ok := tx.s.tables[o.kind].get(o.key); ok {
		tx.remove(r, old)
	}
}

func (tx *Tx) write(e Event) {
	tx.s.revision++
	e.Revision = tx.s.revision
	e.Object.SetResourceVersion(strconv.FormatUint(e.Revision, 10))
	now := e.After()
	tx.s.tables[e.Kind].set(KeyOf(e.Object), now)
	tx.s.index.replace(e.Kind, e.Old, now)
	tx.events = append(tx.events, e)
	tx.touched(e.Kind, e.Old, now)
}

// newUID returns unique because no two objects are made at the same revision.
func newUID(k Kind, key Key, revision uint64) types.UID {
	h := sha256.Sum256(fmt.Appendf(nil, "%s %s %d", k, key, revision))
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16]))
}

// Apply creates or updates objects as "kubectl apply" would: what a manifest leaves out keeps the allocated value, else
// the default; the status is ignored, except that of a new Node. Either all objects are stored or none; the error joins
// everything that is wrong with any of them.
func (s *Store) Apply(objs ...Object) error {
	return s.Do(func(tx *Tx) error { return tx.Apply(objs...) })
}

// Apply is Store.Apply inside a change.
func (tx *Tx) Apply(objs ...Object) error {
	var errs []error
	seen := map[ref]bool{}
	var todo []Object
	for i, in := range objs {
		r := ResourceOf(in)
		if r == nil {
			errs = append(errs, fmt.Errorf("object %d: type %T is not known", i+1, in))
			continue
		}
		obj := copyOf(in)
		key := r.key(obj.GetNamespace(), obj.GetName())
		if r.Namespaced {
			obj.SetNamespace(key.Namespace)
		}
		if seen[ref{r.Kind, key}] {
			errs = append(errs, fmt.Errorf("%s %q is given twice", r.Kind, key))
			continue
		}
		seen[ref{r.Kind, key}] = true
		todo = append(todo, obj)
	}
	slices.SortStableFunc(todo, compareApplyOrder)
	for _, obj := range todo {
		if err := tx.applyOne(ResourceOf(obj), obj); err != nil {
			errs = append(errs, err)
		}
	}
	return tx.fail(errors.Join(errs...))
}

// compareApplyOrder orders objects after those they refer to, and Services that ask for an address or port first.
func compareApplyOrder(a, b Object) int {
	rank := func(o Object) int {
		n := 2 * ResourceOf(o).rank()
		if svc, ok := o.(*corev1.Service); ok && !asksFor(svc) {
			n++
		}
		return n
	}
	return rank(a) - rank(b)
}

func (tx *Tx) applyOne(r *Resource, obj Object) error {
	old, exists := tx.s.tables[r.Kind].get(KeyOf(obj))
	if !exists {
		resetMeta(obj)
		if r.Kind != KindNode {
			copyStatus(obj, nil)
		}
		return tx.save(r, obj, nil)
	}
	if err := samePreconditions(r, obj, old); err != nil {
		return err
	}
	keepMeta(obj, old)
	copyStatus(obj, old)
	return tx.save(r, obj, old)
}

// resetMeta clears the fields that only the store sets.
func resetMeta(o Object) {
	o.SetUID("")
	o.SetResourceVersion("")
	o.SetDeletionTimestamp(nil)
	o.SetDeletionGracePeriodSeconds(nil)
	o.SetManagedFields(nil)
	o.SetSelfLink("")
}

// keepMeta copies the fields that only the store sets.
func keepMeta(o, old Object) {
	resetMeta(o)
	o.SetUID(old.GetUID())
	o.SetCreationTimestamp(old.GetCreationTimestamp())
	o.SetGenerateName(old.GetGenerateName())
	o.SetDeletionTimestamp(old.GetDeletionTimestamp())
	o.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	if o.GetOwnerReferences() == nil {
		o.SetOwnerReferences(old.GetOwnerReferences())
	}
}

// save defaults, validates and stores an object; old is the one it replaces, or nil.
func (tx *Tx) save(r *Resource, obj, old Object) error {
	if errs := tx.admit(obj, old); len(errs) > 0 {
		return apierrors.NewInvalid(r.groupKind(), KeyOf(obj).String(), errs)
	}
	if old == nil {
		if err := tx.admitIn(r, KeyOf(obj)); err != nil {
			return err
		}
	}
	tx.put(r, obj)
	tx.goIfReady(r, KeyOf(obj))
	return nil
}
