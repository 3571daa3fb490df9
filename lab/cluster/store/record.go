// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"hash/fnv"
	"iter"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Notice is what an Event of Kubernetes says about an object.
type Notice struct {
	About Object
	// Part is the part of the object that is meant, such as "spec.containers{web}"; empty means the whole object.
	Part    string
	Warning bool // else the Event is of the type Normal
	Reason  string
	Message string
	// Component is the program that says it, such as "kubelet", and Host its node, if it has one.
	Component, Host string
}

// Event returns the notice as an Event that was seen once. Notices that say the same of the same object have Events of
// one name.
func (n Notice) Event(now metav1.Time) *corev1.Event {
	r := ResourceOf(n.About)
	e := &corev1.Event{
		InvolvedObject: corev1.ObjectReference{
			APIVersion: r.APIVersion(), Kind: string(r.Kind), Namespace: n.About.GetNamespace(), Name: n.About.GetName(),
			UID: n.About.GetUID(), ResourceVersion: n.About.GetResourceVersion(), FieldPath: n.Part,
		},
		Type: corev1.EventTypeNormal, Reason: n.Reason, Message: n.Message,
		Source:              corev1.EventSource{Component: n.Component, Host: n.Host},
		ReportingController: n.Component, ReportingInstance: n.Host,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	if n.Warning {
		e.Type = corev1.EventTypeWarning
	}
	e.Namespace = metav1.NamespaceDefault // that of Events about objects without one
	if r.Namespaced {
		e.Namespace = n.About.GetNamespace()
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %q %s %s %q %s %s", n.About.GetUID(), n.Part, e.Type, n.Reason, n.Message, n.Component, n.Host)
	e.Name = fmt.Sprintf("%s.%016x", n.About.GetName(), h.Sum64())
	return e
}

// maxRecords is how many Events wait for a reader; the oldest go first.
const maxRecords = 1000

// records are Events that have not been read.
type records struct {
	on   bool
	mu   sync.Mutex
	all  []*corev1.Event
	more chan struct{} // holds a value if there may be something in all
}

func newRecords(on bool) *records { return &records{on: on, more: make(chan struct{}, 1)} }

func (r *records) add(events ...*corev1.Event) {
	if len(events) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, events...)
	if over := len(r.all) - maxRecords; over > 0 {
		r.all = slices.Clone(r.all[over:])
	}
	select {
	case r.more <- struct{}{}:
	default:
	}
}

func (r *records) take() []*corev1.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all
	r.all = nil
	return all
}

// Record posts an Event about an object. Without Config.Events it does nothing.
func (s *Store) Record(n Notice) {
	if s.records.on {
		s.records.add(n.Event(metav1.NewTime(s.now()).Rfc3339Copy()))
	}
}

// Records yields the Events of controllers, the scheduler and Record, once each and the oldest first, until the context
// ends. Only one reader gets an Event. There are none without Config.Events.
func (s *Store) Records(ctx context.Context) iter.Seq[*corev1.Event] {
	return func(yield func(*corev1.Event) bool) {
		for {
			for _, e := range s.records.take() {
				if !yield(e) {
					return
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-s.records.more:
			}
		}
	}
}

// record posts an Event once the change is committed.
func (tx *Tx) record(n Notice) {
	if tx.s.records.on {
		tx.records = append(tx.records, n.Event(tx.now))
	}
}

// controllerNames are those of the programs that look after a kind in a cluster.
var controllerNames = map[Kind]string{
	KindDeployment: "deployment-controller", KindReplicaSet: "replicaset-controller",
	KindDaemonSet: "daemonset-controller", KindStatefulSet: "statefulset-controller", KindJob: "job-controller",
}

// say posts an Event of the controller of an object.
func (tx *Tx) say(about Object, reason, format string, args ...any) {
	if tx.s.records.on {
		tx.record(Notice{About: about, Reason: reason, Message: fmt.Sprintf(format, args...),
			Component: controllerNames[ResourceOf(about).Kind]})
	}
}

// sayPod posts the Event of a controller that has made or deleted a pod, in its controller's words.
func (tx *Tx) sayPod(owner Object, deed string, p *corev1.Pod) {
	reason := map[string]string{"create": "SuccessfulCreate", "delete": "SuccessfulDelete"}[deed]
	if s := ResourceOf(owner); s.Kind == KindStatefulSet {
		tx.say(owner, reason, "%s Pod %s in StatefulSet %s successful", deed, p.Name, owner.GetName())
		return
	}
	tx.say(owner, reason, "%s pod: %s", map[string]string{"create": "Created", "delete": "Deleted"}[deed], p.Name)
}
