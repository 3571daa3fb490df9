// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"strings"
	"testing"

	"github.com/viplab/viplab/lab/cluster/store"
)

func TestRecordScheduling(t *testing.T) {
	pod := newPod("p", "web")
	pod.Spec.NodeName, pod.Spec.NodeSelector = "", map[string]string{"disk": "ssd"}
	c := newClient(t, store.Config{}, newNode("n1"), pod)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.server.RecordScheduling(ctx)
	}()
	s := c.watch("/api/v1/events?watch=1")
	e, ok := s.next()
	if !ok || !strings.Contains(string(e.raw), `"reason":"FailedScheduling"`) ||
		!strings.Contains(string(e.raw), "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.") {
		t.Errorf("got %s", e.raw)
	}
	c.apply(newNode("n2"))
	if e, _ := s.next(); !strings.Contains(string(e.raw), "0/2 nodes are available") {
		t.Errorf("got %s", e.raw)
	}
	cancel()
	<-ended
}

func TestRecordCounts(t *testing.T) {
	c := newClient(t, store.Config{Events: true}, newNode("n1"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.server.RecordEvents(ctx)
	}()
	s := c.watch("/api/v1/events?watch=1")
	n := store.Notice{About: newNode("n1"), Warning: true, Reason: "Rebooted", Message: "again", Component: "kubelet"}
	for _, want := range []string{`"count":1`, `"count":2`, `"count":3`} {
		c.server.store.Record(n)
		if e, ok := s.next(); !ok || !strings.Contains(string(e.raw), want) {
			t.Errorf("got %s, want %s", e.raw, want)
		}
	}
	cancel()
	<-ended
}
