// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// admit sets defaults, allocates and validates. old is the object that is replaced, or nil.
func (tx *Tx) admit(obj, old Object) field.ErrorList {
	errs := tx.validateMeta(obj)
	switch o := obj.(type) {
	case *corev1.Namespace:
		defaultNamespace(o)
	case *corev1.Node:
		was, _ := old.(*corev1.Node)
		errs = append(errs, validateNode(o, was)...)
	case *corev1.Pod:
		was, _ := old.(*corev1.Pod)
		errs = append(errs, tx.admitPod(o, was)...)
	case *appsv1.Deployment:
		was, _ := old.(*appsv1.Deployment)
		defaultDeployment(o)
		errs = append(errs, validateDeployment(o, was)...)
	case *appsv1.ReplicaSet, *appsv1.DaemonSet, *appsv1.StatefulSet, *appsv1.ControllerRevision, *batchv1.Job:
		errs = append(errs, tx.admitWorkload(obj, old)...)
	case *corev1.Service:
		was, _ := old.(*corev1.Service)
		errs = append(errs, tx.admitService(o, was)...)
	case *corev1.Endpoints:
		defaultEndpoints(o)
		errs = append(errs, validateEndpoints(o)...)
	case *discoveryv1.EndpointSlice:
		was, _ := old.(*discoveryv1.EndpointSlice)
		defaultEndpointSlice(o)
		errs = append(errs, validateEndpointSlice(o, was)...)
	case *networkingv1.NetworkPolicy:
		defaultNetworkPolicy(o)
		errs = append(errs, validateNetworkPolicy(o)...)
	default:
		errs = append(errs, tx.admitPlain(obj, old)...)
	}
	return errs
}

// admitStatus completes and checks the status that a caller reports.
func admitStatus(obj Object) field.ErrorList {
	switch o := obj.(type) {
	case *corev1.Service:
		defaultServiceStatus(o)
		return validateServiceStatus(o)
	case *corev1.Pod:
		defaultPodStatus(o)
		return validatePodStatus(o)
	case *corev1.Node:
		return validateNodeStatus(o)
	}
	return nil
}

func (tx *Tx) validateMeta(obj Object) field.ErrorList {
	r, path := ResourceOf(obj), field.NewPath("metadata")
	errs := apivalidation.ValidateObjectMetaAccessor(obj, r.Namespaced, nameRule(r.Kind), path)
	if r.Namespaced {
		if _, ok := tx.s.namespaces.objects[Key{"", obj.GetNamespace()}]; !ok {
			errs = append(errs, field.NotFound(path.Child("namespace"), obj.GetNamespace()))
		}
	}
	return errs
}

// nameRule returns what names a kind allows. Services become DNS labels.
func nameRule(k Kind) apivalidation.ValidateNameFunc {
	switch k {
	case KindNamespace:
		return apivalidation.ValidateNamespaceName
	case KindService:
		return apivalidation.NameIsDNSLabel
	case KindIPAddress:
		return isCanonicalIP
	default:
		return apivalidation.NameIsDNSSubdomain
	}
}

func defaultNamespace(ns *corev1.Namespace) {
	if ns.Labels == nil {
		ns.Labels = map[string]string{}
	}
	ns.Labels[corev1.LabelMetadataName] = ns.Name
	if ns.DeletionTimestamp == nil {
		ns.Status.Phase = corev1.NamespaceActive
	}
}

// immutable checks that a field that is set once keeps its value.
func immutable[T comparable](path *field.Path, now, was T) field.ErrorList {
	if now == was {
		return nil
	}
	return invalid(path, now, fmt.Sprintf("field is immutable (it is %v)", was))
}
