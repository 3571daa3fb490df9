// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object is a Kubernetes object: a pointer to one of the types of k8s.io/api that the store knows.
type Object interface {
	runtime.Object
	metav1.Object
}

// Kind is the name of a kind as in manifests. Every kind has exactly one API version.
type Kind string

// The kinds the store knows.
const (
	KindNamespace      Kind = "Namespace"
	KindNode           Kind = "Node"
	KindPod            Kind = "Pod"
	KindDeployment     Kind = "Deployment"
	KindService        Kind = "Service"
	KindEndpoints      Kind = "Endpoints"
	KindEndpointSlice  Kind = "EndpointSlice"
	KindNetworkPolicy  Kind = "NetworkPolicy"
	KindReplicaSet     Kind = "ReplicaSet"
	KindDaemonSet      Kind = "DaemonSet"
	KindStatefulSet    Kind = "StatefulSet"
	KindJob            Kind = "Job"
	KindConfigMap      Kind = "ConfigMap"
	KindSecret         Kind = "Secret"
	KindServiceAccount Kind = "ServiceAccount"
	KindIngress        Kind = "Ingress"
	KindIngressClass   Kind = "IngressClass"
	KindIPAddress      Kind = "IPAddress"
	KindServiceCIDR    Kind = "ServiceCIDR"

	KindControllerRevision  Kind = "ControllerRevision"
	KindPodDisruptionBudget Kind = "PodDisruptionBudget"
)

// Key names an object of a kind. Namespace is empty for Namespaces, Nodes and other kinds without one.
type Key struct{ Namespace, Name string }

// KeyOf returns the key of an object.
func KeyOf(o Object) Key { return Key{o.GetNamespace(), o.GetName()} }

// String returns "namespace/name", or the name alone.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

func compareKeys(a, b Key) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// Resource describes a kind: its names in manifests and URLs, and its Go type.
type Resource struct {
	Kind       Kind
	Group      string // "" is the core group
	Version    string
	Plural     string
	Namespaced bool
	// Status reports whether the kind has a status part, which UpdateStatus changes and Apply and Update keep.
	Status   bool
	typ      reflect.Type
	newTable func() anyTable
}

// resources are ordered so that a kind comes after those it refers to. Apply stores objects in this order.
var resources = []*Resource{
	resource[corev1.Namespace](KindNamespace, "", "v1", "namespaces", false),
	resource[corev1.Node](KindNode, "", "v1", "nodes", false),
	resource[networkingv1.ServiceCIDR](KindServiceCIDR, "networking.k8s.io", "v1", "servicecidrs", false),
	resource[networkingv1.IPAddress](KindIPAddress, "networking.k8s.io", "v1", "ipaddresses", false),
	resource[corev1.ServiceAccount](KindServiceAccount, "", "v1", "serviceaccounts", true),
	resource[corev1.Secret](KindSecret, "", "v1", "secrets", true),
	resource[corev1.ConfigMap](KindConfigMap, "", "v1", "configmaps", true),
	resource[corev1.Service](KindService, "", "v1", "services", true),
	resource[corev1.Endpoints](KindEndpoints, "", "v1", "endpoints", true),
	resource[corev1.Pod](KindPod, "", "v1", "pods", true),
	resource[appsv1.Deployment](KindDeployment, "apps", "v1", "deployments", true),
	resource[appsv1.ReplicaSet](KindReplicaSet, "apps", "v1", "replicasets", true),
	resource[appsv1.DaemonSet](KindDaemonSet, "apps", "v1", "daemonsets", true),
	resource[appsv1.StatefulSet](KindStatefulSet, "apps", "v1", "statefulsets", true),
	resource[appsv1.ControllerRevision](KindControllerRevision, "apps", "v1", "controllerrevisions", true),
	resource[batchv1.Job](KindJob, "batch", "v1", "jobs", true),
	resource[policyv1.PodDisruptionBudget](KindPodDisruptionBudget, "policy", "v1", "poddisruptionbudgets", true),
	resource[discoveryv1.EndpointSlice](KindEndpointSlice, "discovery.k8s.io", "v1", "endpointslices", true),
	resource[networkingv1.NetworkPolicy](KindNetworkPolicy, "networking.k8s.io", "v1", "networkpolicies", true),
	resource[networkingv1.IngressClass](KindIngressClass, "networking.k8s.io", "v1", "ingressclasses", false),
	resource[networkingv1.Ingress](KindIngress, "networking.k8s.io", "v1", "ingresses", true),
}

var resourcesByType = func() map[reflect.Type]*Resource {
	out := map[reflect.Type]*Resource{}
	for _, r := range resources {
		out[r.typ] = r
	}
	return out
}()

func resource[T any, P interface {
	*T
	Object
}](k Kind, group, version, plural string, namespaced bool) *Resource {
	_, status := reflect.TypeFor[T]().FieldByName("Status")
	return &Resource{
		Kind: k, Group: group, Version: version, Plural: plural, Namespaced: namespaced, Status: status,
		typ: reflect.TypeFor[*T](), newTable: func() anyTable { return newTable[P]() },
	}
}

// Resources lists the kinds the store knows.
func Resources() []*Resource { return slices.Clone(resources) }

// APIVersion returns "v1" or "group/version".
func (r *Resource) APIVersion() string {
	return schema.GroupVersion{Group: r.Group, Version: r.Version}.String()
}

// New returns an empty object of the kind.
func (r *Resource) New() Object { return reflect.New(r.typ.Elem()).Interface().(Object) }

func (r *Resource) groupKind() schema.GroupKind {
	return schema.GroupKind{Group: r.Group, Kind: string(r.Kind)}
}

func (r *Resource) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Plural}
}

func (r *Resource) rank() int { return slices.Index(resources, r) }

// ResourceOf returns the resource of an object, or nil if the store does not know its type.
func ResourceOf(o Object) *Resource {
	return resourcesByType[reflect.TypeOf(o)]
}

// ResourceNamed returns the resource with the given kind or plural, in upper or lower case. The error lists the known
// kinds.
func ResourceNamed(name string) (*Resource, error) {
	var known []string
	for _, r := range resources {
		if strings.EqualFold(name, string(r.Kind)) || strings.EqualFold(name, r.Plural) {
			return r, nil
		}
		known = append(known, string(r.Kind))
	}
	return nil, fmt.Errorf("kind %q is not known; known kinds: %s", name, strings.Join(known, ", "))
}

// SetTypeMeta sets the kind and the API version of an object of the kind.
func (r *Resource) SetTypeMeta(o Object) {
	gv := schema.GroupVersion{Group: r.Group, Version: r.Version}
	o.GetObjectKind().SetGroupVersionKind(gv.WithKind(string(r.Kind)))
}

// copyOf returns a deep copy of the same type.
func copyOf[T Object](o T) T { return o.DeepCopyObject().(T) }

// copyStatus copies the status of src to dst. If src is nil it clears the status.
func copyStatus(dst, src Object) {
	status := reflect.ValueOf(dst).Elem().FieldByName("Status")
	if !status.IsValid() {
		return
	}
	if src == nil {
		status.SetZero()
		return
	}
	status.Set(reflect.ValueOf(copyOf(src)).Elem().FieldByName("Status"))
}

// samePart compares the top-level fields of two objects of one kind for which in says true: "Spec", "Status" and so on.
func samePart(a, b Object, in func(field string) bool) bool {
	va, vb := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for i := range va.NumField() {
		if !in(va.Type().Field(i).Name) {
			continue
		}
		// The plain comparison is several times faster; the other takes no list and an empty list for equal.
		fa, fb := va.Field(i).Addr().Interface(), vb.Field(i).Addr().Interface()
		if !reflect.DeepEqual(fa, fb) && !equality.Semantic.DeepEqual(fa, fb) {
			return false
		}
	}
	return true
}

func isStatus(field string) bool { return field == "Status" }

func isSpec(field string) bool {
	return field != "Status" && field != "TypeMeta" && field != "ObjectMeta"
}
