// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab/cluster/store"
)

// Record posts an Event, for "kubectl describe" and "kubectl get events". If there is one of its name, that one counts
// once more. The oldest Events of many are forgotten.
func (s *Server) Record(e *corev1.Event) {
	_, _ = s.events.edit(store.KeyOf(e), editOptions{}, func(old store.Object) (store.Object, error) {
		if old == nil {
			return e, nil
		}
		again := old.DeepCopyObject().(*corev1.Event)
		again.Count += e.Count
		again.LastTimestamp = e.LastTimestamp
		return again, nil
	})
}

// RecordEvents posts the Events of the store (store.Config.Events) until the context ends.
func (s *Server) RecordEvents(ctx context.Context) {
	for e := range s.store.Records(ctx) {
		s.Record(e)
	}
}

// RecordScheduling posts an Event FailedScheduling whenever a pod fits no node, and again when the reason changes. It
// returns when the context ends.
func (s *Server) RecordScheduling(ctx context.Context) {
	said := map[store.Key]string{}
	for e, err := range s.store.Watch(ctx, store.KindPod) {
		if err != nil {
			return
		}
		key := store.KeyOf(e.Object)
		why := ""
		if e.After() != nil {
			why = unschedulable(e.Object.(*corev1.Pod))
		}
		switch {
		case why == "":
			delete(said, key)
		case said[key] != why:
			said[key] = why
			s.Record(store.Notice{About: e.Object, Warning: true, Reason: "FailedScheduling", Message: why,
				Component: corev1.DefaultSchedulerName}.Event(metav1.Now().Rfc3339Copy()))
		}
	}
}

// unschedulable returns why a pod fits no node, or nothing.
func unschedulable(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}
