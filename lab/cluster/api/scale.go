// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/viplab/viplab/lab/cluster/store"
)

var scaleKind = autoscalingv1.SchemeGroupVersion.WithKind("Scale")

// scaleOf returns the scale subresource of a Deployment.
func scaleOf(o store.Object) *autoscalingv1.Scale {
	d := o.(*appsv1.Deployment)
	out := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: d.Name, UID: d.UID, ResourceVersion: d.ResourceVersion,
			CreationTimestamp: d.CreationTimestamp,
		},
		Spec: autoscalingv1.ScaleSpec{Replicas: *d.Spec.Replicas},
		Status: autoscalingv1.ScaleStatus{
			Replicas: d.Status.Replicas, Selector: metav1.FormatLabelSelector(d.Spec.Selector),
		},
	}
	out.SetGroupVersionKind(scaleKind)
	return out
}

// scale reads or changes the wanted number of pods of a Deployment.
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
		d := copyOf(old).(*appsv1.Deployment)
		d.ResourceVersion = wanted.ResourceVersion
		d.Spec.Replicas = &wanted.Spec.Replicas
		return d, nil
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
