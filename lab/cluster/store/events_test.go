// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
)

func TestEventsSince(t *testing.T) {
	s := newTestStore(t, Config{}, "n1")
	from := s.Snapshot().Revision
	apply(t, s, newService("web"), newPod("p", "n1", app("web")))
	report(t, s, "p", true, "10.244.1.1")
	if err := s.Delete("Service", "default", "web"); err != nil {
		t.Fatal(err)
	}
	events, err := s.EventsSince(from)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, e := range events {
		if e.Revision != from+uint64(i)+1 || e.Object.GetResourceVersion() != fmt.Sprint(e.Revision) {
			t.Errorf("event %d has revision %d and resourceVersion %s", i, e.Revision, e.Object.GetResourceVersion())
		}
		if (e.Old == nil) != (e.Type == watch.Added) {
			t.Errorf("event %d: %s with old object %v", i, e.Type, e.Old)
		}
		got = append(got, fmt.Sprintf("%s %s", e.Type, e.Kind))
	}
	checkSame(t, "events", got, []string{
		"ADDED Service", "ADDED Pod", "ADDED EndpointSlice", // an empty one: the pod has no address yet
		"MODIFIED Pod", "ADDED EndpointSlice", "DELETED EndpointSlice",
		"DELETED Service", "DELETED EndpointSlice",
	})
	if later, err := s.EventsSince(s.Snapshot().Revision); err != nil || len(later) != 0 {
		t.Errorf("events of the future: %v, %v", later, err)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	s := newTestStore(t, Config{History: 10}, "n1")
	start := s.Snapshot().Revision
	for i := range 40 {
		apply(t, s, newNode("n1", fmt.Sprint("zone-", i)))
	}
	if _, err := s.EventsSince(start); !errors.Is(err, ErrTooOld) {
		t.Errorf("error %v, want ErrTooOld", err)
	}
	for e, err := range s.WatchFrom(t.Context(), start) {
		if !errors.Is(err, ErrTooOld) {
			t.Errorf("event %v and error %v, want ErrTooOld", e, err)
		}
	}
	events, err := s.EventsSince(s.Snapshot().Revision - 10)
	if err != nil || len(events) != 10 {
		t.Errorf("%d events, error %v", len(events), err)
	}
	// A change bigger than the history is kept whole.
	before := s.Snapshot().Revision
	if err := s.Do(func(tx *Tx) error {
		for i := range 50 {
			if err := tx.Apply(newPod(fmt.Sprint("p", i), "n1", nil)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if events, err := s.EventsSince(before); err != nil || len(events) != 50 {
		t.Errorf("%d events, error %v", len(events), err)
	}
}

// Watchers that start at any time end up with the state of the store, having seen every change exactly once and in
// order.
func TestWatchers(t *testing.T) {
	s := newTestStore(t, Config{}, "n1", "n2")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var watchers, writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := range 30 {
				name := fmt.Sprintf("w%d-%d", w, i)
				if err := s.Apply(newService(name), newPod(name, "", app(name))); err != nil {
					t.Error(err)
				}
				if i%3 == 0 {
					if err := s.Delete(KindService, "default", name); err != nil {
						t.Error(err)
					}
				}
			}
		})
		watchers.Go(func() {
			state := map[string]string{}
			var last uint64
			for e, err := range s.Watch(ctx, KindService, KindPod) {
				if err != nil {
					t.Error(err)
					return
				}
				if e.Object.GetName() == "zz-end" {
					checkState(t, state, s.Snapshot())
					return
				}
				checkTransition(t, state, e, &last)
			}
			t.Error("the watch ended early")
		})
	}
	writers.Wait()
	apply(t, s, newPod("zz-end", "n1", nil)) // the last one also for a watcher that starts now
	watchers.Wait()
}

func checkTransition(t *testing.T, state map[string]string, e Event, last *uint64) {
	id := fmt.Sprintf("%s %s", e.Kind, KeyOf(e.Object))
	was, known := state[id]
	if known == (e.Type == watch.Added) {
		t.Errorf("%s of %s, known: %t", e.Type, id, known)
	}
	if e.Old != nil && e.Old.GetResourceVersion() != was {
		t.Errorf("%s of %s from %s, but %s was seen last", e.Type, id, e.Old.GetResourceVersion(), was)
	}
	// The first, Added events are in the order of names; from the first change on revisions grow.
	if e.Type != watch.Added && e.Revision <= *last {
		t.Errorf("revision %d after %d", e.Revision, *last)
	}
	*last = max(*last, e.Revision)
	if e.Type == watch.Deleted {
		delete(state, id)
	} else {
		state[id] = e.Object.GetResourceVersion()
	}
}

func checkState(t *testing.T, state map[string]string, snapshot *Snapshot) {
	want := 0
	for _, p := range snapshot.Pods {
		if p.Name == "zz-end" {
			continue
		}
		if want++; state["Pod "+KeyOf(p).String()] != p.ResourceVersion {
			t.Errorf("pod %s is at %s, the watcher at %q", p.Name, p.ResourceVersion, state["Pod "+KeyOf(p).String()])
		}
	}
	for _, svc := range snapshot.Services {
		if want++; state["Service "+KeyOf(svc).String()] != svc.ResourceVersion {
			t.Errorf("service %s is at %s, the watcher at %q", svc.Name, svc.ResourceVersion,
				state["Service "+KeyOf(svc).String()])
		}
	}
	if len(state) != want {
		t.Errorf("the watcher knows %d objects, there are %d", len(state), want)
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	s := newTestStore(t, Config{}, "n1")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	for e, err := range s.Watch(ctx, KindNode) {
		if err != nil || e.Kind != KindNode || e.Type != watch.Added {
			t.Errorf("event %v, error %v", e, err)
		}
		n++
		cancel()
	}
	if n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}

func TestChanged(t *testing.T) {
	s := newTestStore(t, Config{})
	now := s.Snapshot().Revision
	open := s.Changed(now)
	select {
	case <-s.Changed(now - 1):
	default:
		t.Error("Changed of the past is open")
	}
	if err := s.Apply(newPod("p", "nowhere", nil)); err == nil {
		t.Fatal("a pod on no node was stored")
	}
	select {
	case <-open:
		t.Error("a change that failed closed the channel")
	default:
	}
	apply(t, s, newService("web"))
	<-open
}

func TestDoIsAtomic(t *testing.T) {
	s := newTestStore(t, Config{}, "n1")
	before := s.Snapshot()
	wrong := errors.New("wrong")
	if err := s.Do(func(tx *Tx) error {
		if err := tx.Apply(newService("web"), newPod("p", "n1", app("web"))); err != nil {
			return err
		}
		if err := tx.Delete(KindNode, "", "n1"); err != nil {
			return err
		}
		return wrong
	}); !errors.Is(err, wrong) {
		t.Errorf("error %v", err)
	}
	// An error that do forgets about still undoes everything.
	if err := s.Do(func(tx *Tx) error {
		_ = tx.Apply(newService("web"))
		_ = tx.Delete(KindPod, "default", "nothing")
		_ = Update(tx, "default", "web", func(svc *corev1.Service) { svc.Labels = app("x") })
		return nil
	}); err == nil || !strings.Contains(err.Error(), `pods "default/nothing" not found`) {
		t.Errorf("error %v", err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = s.Do(func(tx *Tx) error { _ = tx.Apply(newService("web")); panic("oops") })
	}()
	if after := s.Snapshot(); after != before || !slices.Equal(after.Nodes, before.Nodes) {
		t.Error("something was stored")
	}
	apply(t, s, newService("web"))
	if svc := get[*corev1.Service](t, s, "web"); revisionOf(svc) != before.Revision+1 {
		t.Errorf("revision %s after %d", svc.ResourceVersion, before.Revision)
	}
}
