// SPDX-License-Identifier: Apache-2.0

package api

import (
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"

	"github.com/viplab/viplab/lab/cluster/store"
)

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

func (n newerEvents) edit(k store.Key, how manner, change edit) (store.Object, error) {
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
