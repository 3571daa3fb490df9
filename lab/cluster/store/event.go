// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// EventLine formats an Event as one line: when it was last seen (UTC), its type, what it regards, its reason and
// message.
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
