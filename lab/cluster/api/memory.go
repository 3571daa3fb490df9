// SPDX-License-Identifier: Apache-2.0

package api

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/viplab/viplab/lab/cluster/store"
)

// memory holds the objects of a resource that means nothing to the cluster, with revisions of its own.
type memory struct {
	gvk   schema.GroupVersionKind
	gr    schema.GroupResource
	limit int // objects kept; the oldest go first. Twice as many changes are remembered.

	mu      sync.Mutex
	now     uint64         // the newest revision
	objects []store.Object // oldest first
	history []store.Event  // the last ones, of consecutive revisions
	wake    chan struct{}  // closed and replaced by every change
}

func newMemory(gvk schema.GroupVersionKind, gr schema.GroupResource, limit int) *memory {
	// A revision of 0 would mean "any" to clients.
	return &memory{gvk: gvk, gr: gr, limit: limit, now: 1, wake: make(chan struct{})}
}

func (m *memory) list() ([]store.Object, uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.objects), m.now
}

func (m *memory) get(k store.Key) (store.Object, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := m.index(k); i >= 0 {
		return m.objects[i], true
	}
	return nil, false
}

func (m *memory) index(k store.Key) int {
	return slices.IndexFunc(m.objects, func(o store.Object) bool { return store.KeyOf(o) == k })
}

func (m *memory) follow(after uint64) (cursor, error) { return &memoryCursor{m, after}, nil }

type memoryCursor struct {
	m  *memory
	at uint64
}

func (c *memoryCursor) revision() uint64 { return c.at }

func (c *memoryCursor) changed() <-chan struct{} {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if c.m.now > c.at {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	return c.m.wake
}

func (c *memoryCursor) next() ([]store.Event, error) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if c.at >= c.m.now {
		return nil, nil
	}
	missing := c.m.now - c.at
	if missing > uint64(len(c.m.history)) {
		return nil, fmt.Errorf("%w: %d (%d)", store.ErrTooOld, c.at, c.m.now-uint64(len(c.m.history)))
	}
	c.at = c.m.now
	return slices.Clone(c.m.history[uint64(len(c.m.history))-missing:]), nil
}

func (m *memory) edit(key store.Key, how editOptions, change edit) (store.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var old store.Object
	at := m.index(key)
	if at >= 0 {
		old = m.objects[at]
	}
	obj, err := change(old)
	if err != nil {
		return nil, err
	}
	if obj == nil {
		if !how.dryRun {
			m.objects = slices.Delete(m.objects, at, at+1)
			m.record(watch.Deleted, m.complete(copyOf(old), old), old)
		}
		return old, nil
	}
	if v := obj.GetResourceVersion(); old != nil && v != "" && v != old.GetResourceVersion() {
		return nil, apierrors.NewConflict(m.gr, key.Name, errModified)
	}
	if errs := apivalidation.ValidateObjectMetaAccessor(obj, true, apivalidation.NameIsDNSSubdomain,
		field.NewPath("metadata")); len(errs) > 0 {
		return nil, apierrors.NewInvalid(m.gvk.GroupKind(), key.Name, errs)
	}
	obj = m.complete(copyOf(obj), old)
	if !how.dryRun {
		m.put(at, obj, old)
	}
	return obj, nil
}

func (m *memory) put(at int, obj, old store.Object) {
	if old != nil {
		m.objects[at] = obj
		m.record(watch.Modified, obj, old)
		return
	}
	m.objects = append(m.objects, obj)
	m.record(watch.Added, obj, nil)
	if len(m.objects) > m.limit {
		first := m.objects[0]
		m.objects = slices.Delete(m.objects, 0, 1)
		m.record(watch.Deleted, m.complete(copyOf(first), first), first)
	}
}

// complete sets the fields that only the server sets, in an object that is recorded next.
func (m *memory) complete(obj, old store.Object) store.Object {
	obj.GetObjectKind().SetGroupVersionKind(m.gvk)
	obj.SetResourceVersion(strconv.FormatUint(m.now+1, 10))
	obj.SetManagedFields(nil)
	if old != nil {
		obj.SetUID(old.GetUID())
		obj.SetCreationTimestamp(old.GetCreationTimestamp())
		return obj
	}
	obj.SetUID(types.UID(rand.Text()))
	obj.SetCreationTimestamp(metav1.Now().Rfc3339Copy())
	return obj
}

func (m *memory) record(t watch.EventType, obj, old store.Object) {
	m.now++
	if len(m.history) >= 4*m.limit {
		m.history = slices.Clone(m.history[len(m.history)-2*m.limit:])
	}
	kind := store.Kind(m.gvk.Kind)
	m.history = append(m.history, store.Event{Revision: m.now, Type: t, Kind: kind, Object: obj, Old: old})
	close(m.wake)
	m.wake = make(chan struct{})
}

func copyOf(o store.Object) store.Object { return o.DeepCopyObject().(store.Object) }

// newerEvents serves the Events of the core group as those of events.k8s.io: Kubernetes has one set of Events.
type newerEvents struct{ *memory }

func (n newerEvents) list() ([]store.Object, uint64) {
	objs, revision := n.memory.list()
	for i, o := range objs {
		objs[i] = toNewer(o)
	}
	return objs, revision
}

func (n newerEvents) get(k store.Key) (store.Object, bool) {
	o, ok := n.memory.get(k)
	if !ok {
		return nil, false
	}
	return toNewer(o), true
}

func (n newerEvents) follow(after uint64) (cursor, error) {
	c, err := n.memory.follow(after)
	return newerCursor{c}, err
}

type newerCursor struct{ cursor }

func (c newerCursor) next() ([]store.Event, error) {
	events, err := c.cursor.next()
	for i := range events {
		events[i].Object, events[i].Old = toNewer(events[i].Object), toNewer(events[i].Old)
	}
	return events, err
}

func (n newerEvents) edit(k store.Key, how editOptions, change edit) (store.Object, error) {
	o, err := n.memory.edit(k, how, func(old store.Object) (store.Object, error) {
		o, err := change(toNewer(old))
		return toCore(o), err
	})
	return toNewer(o), err
}

func toNewer(o store.Object) store.Object {
	if o == nil {
		return nil
	}
	e := o.(*corev1.Event)
	out := &eventsv1.Event{
		ObjectMeta: e.ObjectMeta, EventTime: e.EventTime,
		ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
		Action: e.Action, Reason: e.Reason, Type: e.Type,
		Regarding: e.InvolvedObject, Related: e.Related, Note: e.Message,
		DeprecatedSource: e.Source, DeprecatedCount: e.Count,
		DeprecatedFirstTimestamp: e.FirstTimestamp, DeprecatedLastTimestamp: e.LastTimestamp,
	}
	if e.Series != nil {
		out.Series = &eventsv1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	out.SetGroupVersionKind(eventsv1.SchemeGroupVersion.WithKind("Event"))
	return out
}

func toCore(o store.Object) store.Object {
	if o == nil {
		return nil
	}
	e := o.(*eventsv1.Event)
	out := &corev1.Event{
		ObjectMeta: e.ObjectMeta, EventTime: e.EventTime,
		ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
		Action: e.Action, Reason: e.Reason, Type: e.Type,
		InvolvedObject: e.Regarding, Related: e.Related, Message: e.Note,
		Source: e.DeprecatedSource, Count: e.DeprecatedCount,
		FirstTimestamp: e.DeprecatedFirstTimestamp, LastTimestamp: e.DeprecatedLastTimestamp,
	}
	if e.Series != nil {
		out.Series = &corev1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	return out
}
