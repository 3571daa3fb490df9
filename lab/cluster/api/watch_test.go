// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab/cluster/store"
)

func equal(a, b any) bool { return equality.Semantic.DeepEqual(a, b) }

const watchList = "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=300"

func TestWatchList(t *testing.T) {
	for _, accept := range []string{"application/json", protobufType + ", */*"} {
		c := newClient(t, store.Config{}, newService("a"), newService("b"))
		c.accept = accept
		s := c.watch("/api/v1/services?" + watchList)
		mark := s.want("ADDED a", "ADDED b", "BOOKMARK ")
		if mark.Object.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
			t.Errorf("%s: the bookmark has the annotations %v", accept, mark.Object.Annotations)
		}
		now := fmt.Sprint(c.store.Snapshot().Revision)
		if mark.Object.ResourceVersion != now {
			t.Errorf("%s: the bookmark is at %s, the store at %s", accept, mark.Object.ResourceVersion, now)
		}
		c.apply(newService("c"))
		s.want("ADDED c")
		c.apply(newService("a", "x"))
		s.want("MODIFIED a")
		if err := c.store.Delete(store.KindService, "default", "b"); err != nil {
			t.Fatal(err)
		}
		gone := s.want("DELETED b")
		if want := c.changed(store.KindService); gone.Object.ResourceVersion != want {
			t.Errorf("%s: deleted at %s, want %s", accept, gone.Object.ResourceVersion, want)
		}
	}
}

func TestWatchBegins(t *testing.T) {
	tests := []struct{ query, want string }{
		{"watch=1", "ADDED a,ADDED b"},                   // from nowhere: what there is
		{"watch=1&resourceVersion=0", "ADDED a,ADDED b"}, // from anywhere: the same
		{"watch=1&resourceVersion=BEFORE", "ADDED b"},
		{"watch=1&resourceVersion=NOW", ""},
		{"watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", ""},
		{"watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=NOW", "ADDED a,ADDED b"},
	}
	for _, test := range tests {
		c := newClient(t, store.Config{}, newService("a"))
		before := fmt.Sprint(c.store.Snapshot().Revision)
		c.apply(newService("b"))
		now := fmt.Sprint(c.store.Snapshot().Revision)
		s := c.watch("/api/v1/services?" + strings.NewReplacer("BEFORE", before, "NOW", now).Replace(test.query))
		// The last event proves that nothing else comes before it.
		c.apply(newService("fence"))
		var want []string
		if test.want != "" {
			want = strings.Split(test.want, ",")
		}
		s.want(append(want, "ADDED fence")...)
	}
}

func TestWatchTooOld(t *testing.T) {
	c := newClient(t, store.Config{History: 10})
	for i := range 50 {
		c.apply(newService(fmt.Sprint("s", i)))
	}
	for _, accept := range []string{"application/json", protobufType} {
		c.accept = accept
		s := c.watch("/api/v1/services?watch=1&resourceVersion=1")
		e, ok := s.next()
		if !ok || e.Type != "ERROR" {
			t.Fatalf("got %s, want ERROR", e.Type)
		}
		status := decodeInto[metav1.Status](t, accept, e.raw)
		if status.Code != 410 || status.Reason != metav1.StatusReasonExpired || status.Kind != "Status" {
			t.Errorf("%s: got %+v", accept, status)
		}
		s.wantEnd()
	}
}

func TestWatchThroughSelectors(t *testing.T) {
	c := newClient(t, store.Config{}, newService("a", "x"), newService("b"))
	labels := c.watch("/api/v1/services?labelSelector=x&" + watchList)
	labels.want("ADDED a", "BOOKMARK ")
	fields := c.watch("/api/v1/services?fieldSelector=spec.type=NodePort&" + watchList)
	fields.want("BOOKMARK ")
	shop := c.watch("/api/v1/namespaces/shop/services?" + watchList)
	shop.want("BOOKMARK ")

	c.apply(newService("b", "x"))
	labels.want("ADDED b")
	c.apply(newService("b", "x", "y"))
	labels.want("MODIFIED b")
	c.apply(newService("a"))
	gone := labels.want("DELETED a")
	if gone.Object.Labels["x"] != "yes" {
		t.Errorf("what left the selection is shown as %v, want its last state inside", gone.Object.Labels)
	}
	if want := c.changed(store.KindService); gone.Object.ResourceVersion != want {
		t.Errorf("it left at %s, want %s", gone.Object.ResourceVersion, want)
	}
	// Deleted outside of the selection: nothing; inside: seen.
	for _, name := range []string{"a", "b"} {
		if err := c.store.Delete(store.KindService, "default", name); err != nil {
			t.Fatal(err)
		}
	}
	labels.want("DELETED b")

	n := newService("n")
	n.Spec.Type = corev1.ServiceTypeNodePort
	c.apply(n)
	fields.want("ADDED n")
	n = newService("n")
	n.Spec.Type = corev1.ServiceTypeClusterIP
	c.apply(n)
	fields.want("DELETED n")

	far := newService("far")
	far.Namespace = "shop"
	c.apply(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, far)
	shop.want("ADDED far")
}

// A watch of objects that do not change gets bookmarks, from which a client can resume.
func TestBookmarks(t *testing.T) {
	c := newClient(t, store.Config{})
	s := c.watch("/api/v1/nodes?watch=1&allowWatchBookmarks=1&resourceVersion=" + fmt.Sprint(c.store.Snapshot().Revision))
	silent := c.watch("/api/v1/nodes?watch=1&resourceVersion=" + fmt.Sprint(c.store.Snapshot().Revision))
	err := c.store.Do(func(tx *store.Tx) error {
		for i := range bookmarkEvery {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("ns", i)}}
			if err := tx.Apply(ns); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	mark := s.want("BOOKMARK ")
	if want := fmt.Sprint(c.store.Snapshot().Revision); mark.Object.ResourceVersion != want {
		t.Errorf("the bookmark is at %s, want %s", mark.Object.ResourceVersion, want)
	}
	if mark.Object.Annotations != nil {
		t.Errorf("the bookmark has annotations: %v", mark.Object.Annotations)
	}
	c.apply(newNode("n1"))
	s.want("ADDED n1")
	silent.want("ADDED n1")
}

func TestWatchEnds(t *testing.T) {
	c := newClient(t, store.Config{}, newNode("n1"))
	s := c.watch("/api/v1/nodes?watch=1&timeoutSeconds=1")
	s.want("ADDED n1")
	s.wantEnd()

	s = c.watch("/api/v1/nodes?watch=1&timeoutSeconds=0") // 0 is no limit
	s.want("ADDED n1")
	c.apply(newNode("n2"))
	s.want("ADDED n2")
	if err := c.server.Close(); err != nil {
		t.Fatal(err)
	}
	s.wantEnd()
}

func TestWatchTable(t *testing.T) {
	c := newClient(t, store.Config{}, newNode("n1"))
	c.accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
	s := c.watch("/api/v1/nodes?" + watchList)
	for _, rows := range []string{`"cells":["n1",`, `"rows":[]`} {
		e, ok := s.next()
		if !ok || !bytes.Contains(e.raw, []byte(`"kind":"Table"`)) || !bytes.Contains(e.raw, []byte(rows)) {
			t.Fatalf("got %s %s, want a table with %s", e.Type, e.raw, rows)
		}
	}
}

// TestWatchesSent: what a client has been sent of Services says nothing about what it has been sent of Nodes.
func TestWatchesSent(t *testing.T) {
	c := newClient(t, store.Config{}, newService("a"))
	var watches Watches
	h := httptest.NewServer(watches.Handler(c.server))
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	c.url = h.URL
	c.watch("/api/v1/services?watch=1").want("ADDED a")
	stalled := &watcher{cursor: &storeCursor{at: c.store.Snapshot().Revision}}
	watches.reached(stalled)
	c.apply(newService("b"))
	now := c.store.Snapshot().Revision

	expired, cancel := context.WithCancel(c.ctx)
	cancel()
	if err := watches.Sent(expired, now); err == nil {
		t.Errorf("revision %d counts as sent, though one watch is at an earlier one", now)
	}
	go watches.ended(stalled)
	if err := watches.Sent(c.ctx, now); err != nil {
		t.Errorf("no watch is behind, but: %v", err)
	}
}

// TestWatchesBreak: Break ends watches and withholds answers. Watches from before are too old then, lists and later
// watches are not.
func TestWatchesBreak(t *testing.T) {
	c := newClient(t, store.Config{}, newService("a"))
	var watches Watches
	h := httptest.NewServer(watches.Handler(c.server))
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	c.url = h.URL
	known := c.store.Snapshot().Revision
	watch := c.watch("/api/v1/services?watch=1")
	watch.want("ADDED a")

	resume := watches.Break()
	watch.wantEnd()
	c.apply(newService("b"))
	now := c.store.Snapshot().Revision
	listed := make(chan response)
	go func() { listed <- c.get("/api/v1/services") }()
	select {
	case a := <-listed:
		t.Errorf("a list was answered meanwhile: %s", a.body)
	default:
	}
	resume(now)
	if n := len(into[corev1.ServiceList]((<-listed).want(200)).Items); n != 2 {
		t.Errorf("listed %d Services, want 2", n)
	}
	old := c.watch(fmt.Sprintf("/api/v1/services?watch=1&resourceVersion=%d", known))
	if e, ok := old.next(); !ok || e.Type != "ERROR" || !bytes.Contains(e.raw, []byte(`"code":410`)) {
		t.Errorf("got %s %s, want ERROR 410", e.Type, e.raw)
	}
	later := c.watch(fmt.Sprintf("/api/v1/services?watch=1&resourceVersion=%d", now))
	c.apply(newService("c"))
	later.want("ADDED c")
}
