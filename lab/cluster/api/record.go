// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab/cluster/store"
)

// Record posts an Event about an object, for "kubectl describe" and "kubectl get events". eventType is Normal or
// Warning, and component says who posts it.
func (s *Server) Record(about store.Object, eventType, component, reason, message string) {
	now := metav1.Now().Rfc3339Copy()
	r := store.ResourceOf(about)
	e := &corev1.Event{
		InvolvedObject: corev1.ObjectReference{
			APIVersion: r.APIVersion(), Kind: string(r.Kind), Namespace: about.GetNamespace(), Name: about.GetName(),
			UID: about.GetUID(), ResourceVersion: about.GetResourceVersion(),
		},
		Type: eventType, Reason: reason, Message: message, Source: corev1.EventSource{Component: component},
		ReportingController: component, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	e.Namespace = metav1.NamespaceDefault // that of Events about objects without one
	if r.Namespaced {
		e.Namespace = about.GetNamespace()
	}
	e.Name = fmt.Sprintf("%s.%s.%s", about.GetName(), about.GetUID(), about.GetResourceVersion())
	_, _ = s.events.edit(store.KeyOf(e), editOptions{}, func(store.Object) (store.Object, error) { return e, nil })
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
			s.Record(e.Object, corev1.EventTypeWarning, corev1.DefaultSchedulerName, "FailedScheduling", why)
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
