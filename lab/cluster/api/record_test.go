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
