// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/viplab/viplab/lab/cluster/store"
)

// selection selects the objects of a list or watch.
type selection struct {
	namespace string // empty for all
	labels    labels.Selector
	fields    fields.Selector
}

func (s selection) matches(o store.Object) bool {
	return o != nil && (s.namespace == "" || o.GetNamespace() == s.namespace) &&
		s.labels.Matches(labels.Set(o.GetLabels())) &&
		(s.fields.Empty() || s.fields.Matches(fieldsOf(o)))
}

// of returns the objects that match.
func (s selection) of(all []store.Object) []store.Object {
	return slices.DeleteFunc(slices.Clone(all), func(o store.Object) bool { return !s.matches(o) })
}

// parameters reads the options of a list or watch from the query of a URL.
func parameters(r *request) (*metav1.ListOptions, error) {
	var o metav1.ListOptions
	if err := decodeQuery(r, &o); err != nil {
		return nil, err
	}
	errs := validation.ValidateListOptions(&internalversion.ListOptions{
		Watch:                o.Watch,
		ResourceVersion:      o.ResourceVersion,
		ResourceVersionMatch: o.ResourceVersionMatch,
		Continue:             o.Continue,
		SendInitialEvents:    o.SendInitialEvents,
	}, true)
	if len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	return &o, nil
}

var queries = sync.OnceValue(func() runtime.ParameterCodec { return runtime.NewParameterCodec(scheme()) })

func decodeQuery(r *request, into runtime.Object) error {
	if err := queries().DecodeParameters(r.URL.Query(), schema.GroupVersion{Version: "v1"}, into); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

// selectionOf reads the options and the selectors of a list or watch.
func selectionOf(r *request) (*metav1.ListOptions, selection, error) {
	s := selection{namespace: r.key.Namespace}
	o, err := parameters(r)
	if err != nil {
		return nil, s, err
	}
	if s.labels, err = labels.Parse(o.LabelSelector); err != nil {
		err = fmt.Errorf("unable to parse label selector %q: %w", o.LabelSelector, err)
		return nil, s, apierrors.NewBadRequest(err.Error())
	}
	if s.fields, err = fields.ParseSelector(o.FieldSelector); err != nil {
		err = fmt.Errorf("unable to parse field selector %q: %w", o.FieldSelector, err)
		return nil, s, apierrors.NewBadRequest(err.Error())
	}
	known := fieldsOf(r.resource.new())
	for _, q := range s.fields.Requirements() {
		if _, ok := known[q.Field]; !ok {
			return nil, s, apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s", q.Field))
		}
	}
	return o, s, nil
}

// fieldsOf returns the fields that selectors can name, with their values. Which there are depends on the kind alone.
func fieldsOf(o store.Object) fields.Set {
	out := fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()}
	switch o := o.(type) {
	case *corev1.Namespace:
		out["status.phase"] = string(o.Status.Phase)
	case *corev1.Node:
		out["spec.unschedulable"] = strconv.FormatBool(o.Spec.Unschedulable)
	case *corev1.Service:
		out["spec.clusterIP"] = o.Spec.ClusterIP
		out["spec.type"] = string(o.Spec.Type)
	case *corev1.Pod:
		out["spec.nodeName"] = o.Spec.NodeName
		out["spec.restartPolicy"] = string(o.Spec.RestartPolicy)
		out["spec.schedulerName"] = o.Spec.SchedulerName
		out["spec.serviceAccountName"] = o.Spec.ServiceAccountName
		out["spec.hostNetwork"] = strconv.FormatBool(o.Spec.HostNetwork)
		out["status.phase"] = string(o.Status.Phase)
		out["status.podIP"] = o.Status.PodIP
		out["status.nominatedNodeName"] = o.Status.NominatedNodeName
	case *corev1.Event:
		eventFields(out, o)
	case *eventsv1.Event:
		eventFields(out, toCore(o).(*corev1.Event))
		newerEventFields(out)
	}
	return out
}

func eventFields(out fields.Set, e *corev1.Event) {
	out["involvedObject.kind"] = e.InvolvedObject.Kind
	out["involvedObject.namespace"] = e.InvolvedObject.Namespace
	out["involvedObject.name"] = e.InvolvedObject.Name
	out["involvedObject.uid"] = string(e.InvolvedObject.UID)
	out["involvedObject.apiVersion"] = e.InvolvedObject.APIVersion
	out["involvedObject.resourceVersion"] = e.InvolvedObject.ResourceVersion
	out["involvedObject.fieldPath"] = e.InvolvedObject.FieldPath
	out["reason"] = e.Reason
	out["reportingComponent"] = e.ReportingController
	out["source"] = e.Source.Component
	out["type"] = e.Type
}

// newerEventFields calls the fields of an Event as events.k8s.io does.
func newerEventFields(out fields.Set) {
	for old, v := range maps.Clone(out) {
		if name, ok := strings.CutPrefix(old, "involvedObject."); ok {
			delete(out, old)
			out["regarding."+name] = v
		}
	}
	out["reportingController"] = out["reportingComponent"]
	delete(out, "reportingComponent")
	delete(out, "source")
}
