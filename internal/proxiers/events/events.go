// SPDX-License-Identifier: Apache-2.0

// Package events keeps the Events that built-in proxiers report about Services. An external proxier posts its Events to
// the API server of the lab; a built-in one has no client for it, so its Events stay with the node until they are
// dumped.
package events

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab/cluster/store"
)

// most is how many Events are kept: the newest ones.
const most = 1000

// Recorder takes the Events of one node. It may be used concurrently.
type Recorder struct {
	node   string
	log    *slog.Logger
	mu     sync.Mutex
	events []*corev1.Event
}

// New makes a recorder for a node, which also logs each Event when it is new.
func New(node string, log *slog.Logger) *Recorder { return &Recorder{node: node, log: log} }

// Warn records that something of a Service does not work on this node. A repeated Event is counted, not added.
func (r *Recorder) Warn(namespace, service, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := metav1.NewTime(time.Now())
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: namespace, Name: service}
	for _, e := range r.events {
		if e.InvolvedObject == about && e.Reason == reason && e.Message == message {
			e.Count++
			e.LastTimestamp = now
			return
		}
	}
	r.log.Error(message, "node", r.node, "service", namespace+"/"+service, "reason", reason)
	r.events = append(r.events, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%x", service, now.UnixNano())},
		InvolvedObject: about, Type: corev1.EventTypeWarning, Reason: reason, Message: message,
		Source: corev1.EventSource{Component: "viplab", Host: r.node}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	})
	if len(r.events) > most {
		r.events = r.events[1:]
	}
}

// Lines returns the Events, the oldest first, in the format of the lab's API server.
func (r *Recorder) Lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, e := range r.events {
		out = append(out, store.EventLine(e))
	}
	return out
}
