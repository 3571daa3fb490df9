// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Event is one change of one object. Every event has a revision of its own, and it is the resourceVersion of Object.
type Event struct {
	Revision uint64
	Type     watch.EventType // Added, Modified or Deleted
	Kind     Kind
	// Object is the object after the change. For a deletion it is the last state, with the revision of the deletion.
	Object Object
	// Old is the object before the change, nil if Added. A watch with a selector needs it to report an object that
	// stops matching as deleted.
	Old Object
}

// After returns the object after the change, nil if it was deleted.
func (e Event) After() Object {
	if e.Type == watch.Deleted {
		return nil
	}
	return e.Object
}

// ErrTooOld reports that the history no longer reaches back to a revision: the client must list again (HTTP 410 Gone).
var ErrTooOld = errors.New("too old resource version")

// history keeps the newest events. Revisions of events are consecutive.
type history struct {
	events []Event
	limit  int
}

func (h *history) add(events []Event) {
	if len(h.events)+len(events) > 2*h.limit {
		// Readers may still hold the old array: keep the tail in a new one.
		keep := max(0, h.limit-len(events))
		h.events = slices.Clone(h.events[max(0, len(h.events)-keep):])
	}
	h.events = append(h.events, events...)
}

// since returns the events after a revision, given the newest revision.
func (h *history) since(after, newest uint64) ([]Event, error) {
	if after >= newest {
		return nil, nil
	}
	missing := newest - after
	if missing > uint64(len(h.events)) {
		return nil, fmt.Errorf("%w: %d (oldest is %d)", ErrTooOld, after, newest-uint64(len(h.events)))
	}
	tail := h.events[uint64(len(h.events))-missing:]
	return tail[:len(tail):len(tail)], nil
}

// EventsSince returns the changes after a revision, oldest first, or ErrTooOld. The slice must not be changed. In a
// View, the event of a hidden object has a revision and nothing else.
func (s *Store) EventsSince(revision uint64) ([]Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	events, err := s.history.since(revision, s.revision)
	return s.view.events(events), err
}

// Changed returns a channel that is closed once the store's revision is greater than after, the revision of a snapshot
// or event.
func (s *Store) Changed(after uint64) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.revision > after {
		return closed
	}
	return s.changed
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Watch yields the objects of the kinds, or of all, as Added events, then every change as it happens. It ends when the
// context does, or with ErrTooOld if the consumer falls behind the history.
func (s *Store) Watch(ctx context.Context, kinds ...Kind) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		initial, revision := s.existing(kinds)
		for _, e := range initial {
			if ctx.Err() != nil || !yield(e, nil) {
				return
			}
		}
		s.WatchFrom(ctx, revision, kinds...)(yield)
	}
}

// existing lists the objects of some kinds as Added events. Their revisions are those of their last change.
func (s *Store) existing(kinds []Kind) ([]Event, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Event
	for _, r := range resources {
		if !wanted(kinds, r.Kind) {
			continue
		}
		for _, o := range s.tables[r.Kind].objectsInOrder() {
			if o = s.view.object(o); o != nil {
				out = append(out, Event{Revision: revisionOf(o), Type: watch.Added, Kind: r.Kind, Object: o})
			}
		}
	}
	return out, s.revision
}

// WatchFrom yields every change of the kinds, or of all, after a revision. It ends as Watch does.
func (s *Store) WatchFrom(ctx context.Context, revision uint64, kinds ...Kind) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for {
			events, err := s.EventsSince(revision)
			if err != nil {
				yield(Event{}, err)
				return
			}
			for _, e := range events {
				revision = e.Revision
				if !wanted(kinds, e.Kind) {
					continue
				}
				if ctx.Err() != nil || !yield(e, nil) {
					return
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-s.Changed(revision):
			}
		}
	}
}

func wanted(kinds []Kind, k Kind) bool {
	return k != "" && len(kinds) == 0 || slices.Contains(kinds, k)
}

// EventLine formats an Event as one line: when it was last seen (UTC), type, object, reason and message.
func EventLine(e *corev1.Event) string {
	regards := e.InvolvedObject.Kind + " " + Key{Namespace: e.InvolvedObject.Namespace,
		Name: e.InvolvedObject.Name}.String()
	return fmt.Sprintf("%s %s %s %s: %s", LastSeen(e).UTC().Format("15:04:05"), e.Type, regards, e.Reason, e.Message)
}

// LastSeen returns when an Event was last seen.
func LastSeen(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	default:
		return e.CreationTimestamp.Time
	}
}
