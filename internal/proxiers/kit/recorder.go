// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab/cluster/store"
)

// keptEvents is the number of Events that a Recorder keeps: the newest ones.
const keptEvents = 1000

// Recorder keeps the Events of one node until they are dumped. It is safe for concurrent use. A built-in proxier has no
// client of the API server to post them.
type Recorder struct {
	node   string
	log    *slog.Logger
	mu     sync.Mutex
	events []*corev1.Event
}

// Warn records and logs that something of a Service does not work on this node. A repeated Event is only counted.
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
		Source:         corev1.EventSource{Component: "viplab", Host: r.node},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	})
	if len(r.events) > keptEvents {
		r.events = r.events[1:]
	}
}

// lines returns the Events, the oldest first, in the format of the lab's API server.
func (r *Recorder) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, e := range r.events {
		out = append(out, store.EventLine(e))
	}
	return out
}
