// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"net/http"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/viplab/viplab/lab/cluster/store"
)

var scaleKind = autoscalingv1.SchemeGroupVersion.WithKind("Scale")

// replicasOf returns where a workload says how many pods it wants, how many there are, and how it selects them.
func replicasOf(o store.Object) (want **int32, is int32, selector *metav1.LabelSelector) {
	switch o := o.(type) {
	case *appsv1.Deployment:
		return &o.Spec.Replicas, o.Status.Replicas, o.Spec.Selector
	case *appsv1.ReplicaSet:
		return &o.Spec.Replicas, o.Status.Replicas, o.Spec.Selector
	case *appsv1.StatefulSet:
		return &o.Spec.Replicas, o.Status.Replicas, o.Spec.Selector
	default:
		panic(fmt.Sprintf("%T is not in scalable", o))
	}
}

// scaleOf returns the scale subresource of a workload.
func scaleOf(o store.Object) *autoscalingv1.Scale {
	want, is, selector := replicasOf(o)
	out := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
			CreationTimestamp: o.GetCreationTimestamp(),
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: **want},
		Status: autoscalingv1.ScaleStatus{Replicas: is, Selector: metav1.FormatLabelSelector(selector)},
	}
	out.SetGroupVersionKind(scaleKind)
	return out
}

// scale reads or changes the wanted number of pods of a workload.
func (s *Server) scale(w http.ResponseWriter, r *request) error {
	if r.Method == http.MethodGet {
		o, ok := r.resource.get(r.key)
		if !ok {
			return notFound(r.resource.gr(), r.key.Name)
		}
		return answerScale(w, r, o)
	}
	how, change, err := readScale(w, r)
	if err != nil {
		return err
	}
	result, err := r.resource.edit(r.key, how, func(old store.Object) (store.Object, error) {
		if old == nil {
			return nil, notFound(r.resource.gr(), r.key.Name)
		}
		in, err := change(scaleOf(old))
		if err != nil {
			return nil, err
		}
		wanted := in.(*autoscalingv1.Scale)
		obj := copyOf(old)
		obj.SetResourceVersion(wanted.ResourceVersion)
		replicas, _, _ := replicasOf(obj)
		*replicas = &wanted.Spec.Replicas
		return obj, nil
	})
	if err != nil {
		return err
	}
	return answerScale(w, r, result)
}

// readScale reads a change of a Scale: a new one or a patch.
func readScale(w http.ResponseWriter, r *request) (editOptions, func(*autoscalingv1.Scale) (runtime.Object, error),
	error) {
	switch r.Method {
	case http.MethodPut:
		how, strict, err := writeOptions(r, "")
		if err != nil {
			return how, nil, err
		}
		in, err := decodeBody(w, r.Request, scaleKind, strict)
		return how, func(*autoscalingv1.Scale) (runtime.Object, error) { return in, nil }, err
	case http.MethodPatch:
		p, how, err := readPatch(w, r)
		return how, func(old *autoscalingv1.Scale) (runtime.Object, error) { return p.apply(old, scaleKind) }, err
	default:
		return editOptions{}, nil, notAllowed(r)
	}
}

func answerScale(w http.ResponseWriter, r *request, o store.Object) error {
	f, err := negotiate(r.Request, false)
	if err != nil {
		return err
	}
	f.write(w, http.StatusOK, scaleOf(o))
	return nil
}
