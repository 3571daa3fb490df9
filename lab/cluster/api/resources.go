// SPDX-License-Identifier: Apache-2.0

package api

import (
	"slices"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/viplab/viplab/lab/cluster/store"
)

// resource is one entry of the API: what its URLs and kinds are called, where its objects come from and go to.
type resource struct {
	gvk        schema.GroupVersionKind
	plural     string
	singular   string
	short      []string
	categories []string
	namespaced bool
	status     bool // has a status subresource
	scale      bool // has a scale subresource
	upsert     bool // an update of an object that is not there creates it

	reader
	writer  // nil if the resource is read-only
	printer printer
}

func (r *resource) gr() schema.GroupResource {
	return schema.GroupResource{Group: r.gvk.Group, Resource: r.plural}
}

func (r *resource) gvr() schema.GroupVersionResource {
	return r.gvk.GroupVersion().WithResource(r.plural)
}

// new returns an empty object of the resource's kind.
func (r *resource) new() store.Object {
	o, err := scheme().New(r.gvk)
	utilruntime.Must(err) // every kind in the table of resources is in the scheme
	o.GetObjectKind().SetGroupVersionKind(r.gvk)
	return o.(store.Object)
}

// newList returns an empty list of the resource's kind.
func (r *resource) newList() runtime.Object {
	gvk := r.gvk
	gvk.Kind += "List"
	o, err := scheme().New(gvk)
	utilruntime.Must(err)
	o.GetObjectKind().SetGroupVersionKind(gvk)
	return o
}

// returnsDeleted reports whether the answer to a deletion is the object, not a Status (ReturnDeletedObject in the
// storage of Kubernetes' registries).
func (r *resource) returnsDeleted() bool {
	return r.gvk.Group == "" && slices.Contains([]string{"Pod", "Service", "ServiceAccount"}, r.gvk.Kind)
}

func (r *resource) verbs() []string {
	if r.writer == nil {
		return []string{"get", "list", "watch"}
	}
	return []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
}

var scheme = sync.OnceValue(newScheme)

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, autoscalingv1.AddToScheme, batchv1.AddToScheme, coordinationv1.AddToScheme,
		discoveryv1.AddToScheme, eventsv1.AddToScheme, authenticationv1.AddToScheme, networkingv1.AddToScheme,
		policyv1.AddToScheme, metav1.AddMetaToScheme,
	} {
		utilruntime.Must(add(s))
	}
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s
}

// names holds the short names and the categories of resources, by plural.
var names = map[string]struct{ short, categories []string }{
	"namespaces":           {short: []string{"ns"}},
	"nodes":                {short: []string{"no"}},
	"services":             {short: []string{"svc"}, categories: []string{"all"}},
	"endpoints":            {short: []string{"ep"}},
	"pods":                 {short: []string{"po"}, categories: []string{"all"}},
	"deployments":          {short: []string{"deploy"}, categories: []string{"all"}},
	"replicasets":          {short: []string{"rs"}, categories: []string{"all"}},
	"daemonsets":           {short: []string{"ds"}, categories: []string{"all"}},
	"statefulsets":         {short: []string{"sts"}, categories: []string{"all"}},
	"jobs":                 {categories: []string{"all"}},
	"networkpolicies":      {short: []string{"netpol"}},
	"events":               {short: []string{"ev"}},
	"configmaps":           {short: []string{"cm"}},
	"serviceaccounts":      {short: []string{"sa"}},
	"ingresses":            {short: []string{"ing"}},
	"poddisruptionbudgets": {short: []string{"pdb"}},
	"ipaddresses":          {short: []string{"ip"}},
}

// scalable are the kinds with a scale subresource.
var scalable = map[store.Kind]bool{
	store.KindDeployment: true, store.KindReplicaSet: true, store.KindStatefulSet: true,
}

// Bounds of what clients can make the server remember.
const (
	maxEvents = 1000
	maxLeases = 1000
)

// addResources fills the table of resources.
func (s *Server) addResources() {
	for _, k := range store.Resources() {
		t := stored{s.store, k.Kind}
		s.add(&resource{
			gvk:    schema.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: string(k.Kind)},
			plural: k.Plural, namespaced: k.Namespaced, status: k.Status,
			scale: scalable[k.Kind], upsert: k.Kind == store.KindEndpoints || k.Kind == store.KindService,
			reader: t, writer: t,
		})
	}
	endpoints := s.resources[corev1.SchemeGroupVersion.WithResource("endpoints")]
	endpoints.reader = endpointsReader{s.store}
	endpoints.writer = endpointsWriter{stored{s.store, store.KindEndpoints}}

	core := corev1.SchemeGroupVersion.WithKind("Event")
	s.events = newMemory(core, schema.GroupResource{Resource: "events"}, maxEvents)
	s.add(&resource{gvk: core, plural: "events", namespaced: true, upsert: true, reader: s.events, writer: s.events})
	newer := eventsv1.SchemeGroupVersion.WithKind("Event")
	s.add(&resource{
		gvk: newer, plural: "events", namespaced: true, upsert: true,
		reader: newerEvents{s.events}, writer: newerEvents{s.events},
	})

	lease := coordinationv1.SchemeGroupVersion.WithKind("Lease")
	leases := newMemory(lease, coordinationv1.Resource("leases"), maxLeases)
	s.add(&resource{gvk: leases.gvk, plural: "leases", namespaced: true, upsert: true, reader: leases, writer: leases})
}

func (s *Server) add(r *resource) {
	r.singular = strings.ToLower(r.gvk.Kind)
	r.short, r.categories = names[r.plural].short, names[r.plural].categories
	r.printer = printerOf(r.gvk.GroupKind())
	s.resources[r.gvr()] = r
	s.ordered = append(s.ordered, r)
}

// served lists the resources of a group and version.
func (s *Server) served(gv schema.GroupVersion) []*resource {
	var out []*resource
	for _, r := range s.ordered {
		if r.gvk.GroupVersion() == gv {
			out = append(out, r)
		}
	}
	return out
}

// groupVersions lists what is served, the core group first.
func (s *Server) groupVersions() []schema.GroupVersion {
	var out []schema.GroupVersion
	for _, r := range s.ordered {
		if gv := r.gvk.GroupVersion(); !slices.Contains(out, gv) {
			out = append(out, gv)
		}
	}
	return out
}
