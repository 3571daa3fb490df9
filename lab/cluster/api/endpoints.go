// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/viplab/viplab/lab/cluster/store"
)

// endpointsReader serves Endpoints to clients that know no slices, such as kube-proxy in its userspace mode: those of
// the store, which are hand-written, and for other Services a summary of their EndpointSlices.
type endpointsReader struct{ store *store.Store }

func (r endpointsReader) list() ([]store.Object, uint64) {
	s := r.store.Snapshot()
	v := newEndpointsView(s)
	keys := slices.Concat(slices.Collect(maps.Keys(v.slices)), slices.Collect(maps.Keys(v.own)))
	slices.SortFunc(keys, func(a, b store.Key) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	var out []store.Object
	for _, k := range slices.Compact(keys) {
		if e := v.at(k); e != nil {
			out = append(out, e)
		}
	}
	return out, s.Revision
}

func (r endpointsReader) get(k store.Key) (store.Object, bool) {
	e := newEndpointsView(r.store.Snapshot()).at(k)
	return e, e != nil
}

// endpointsWriter writes Endpoints that are in the store. It refuses those that summarise slices.
type endpointsWriter struct{ stored }

func (w endpointsWriter) edit(k store.Key, how editOptions, change edit) (store.Object, error) {
	_, own := w.get(k)
	if derived, ok := (endpointsReader{w.store}).get(k); ok && !own {
		return nil, apierrors.NewForbidden(corev1.Resource("endpoints"), derived.GetName(),
			errors.New("they say what the EndpointSlices of the Service say: change those"))
	}
	return w.stored.edit(k, how, change)
}

// follow computes what the Endpoints were at a revision by undoing the changes since.
func (r endpointsReader) follow(after uint64) (cursor, error) {
	s := r.store.Snapshot()
	v := newEndpointsView(s)
	events, err := r.store.EventsSince(after)
	if err != nil {
		return nil, err
	}
	for _, e := range slices.Backward(events) {
		if e.Revision > s.Revision {
			continue // newer than the snapshot
		}
		v.replace(e.After(), e.Old)
	}
	of := []store.Kind{store.KindEndpoints, store.KindEndpointSlice}
	return &endpointsCursor{view: v, storeCursor: storeCursor{store: r.store, kinds: of, at: after}}, nil
}

type endpointsCursor struct {
	storeCursor
	view *endpointsView
}

func (c *endpointsCursor) next() ([]store.Event, error) {
	events, err := c.storeCursor.next()
	if err != nil {
		return nil, err
	}
	var out []store.Event
	for _, e := range events {
		out = append(out, c.view.change(e)...)
	}
	return out, nil
}

// endpointsView holds the Endpoints and slices of one revision.
type endpointsView struct {
	own    map[store.Key]*corev1.Endpoints
	slices map[store.Key]map[string]*discoveryv1.EndpointSlice // by Service, then name
}

func newEndpointsView(s *store.Snapshot) *endpointsView {
	v := &endpointsView{map[store.Key]*corev1.Endpoints{}, map[store.Key]map[string]*discoveryv1.EndpointSlice{}}
	for _, e := range s.Endpoints {
		v.replace(nil, e)
	}
	for _, e := range s.EndpointSlices {
		v.replace(nil, e)
	}
	return v
}

// replace replaces one object by another; either may be nil. It ignores objects of other kinds.
func (v *endpointsView) replace(old, obj store.Object) {
	switch o := old.(type) {
	case *corev1.Endpoints:
		delete(v.own, store.KeyOf(o))
	case *discoveryv1.EndpointSlice:
		k := serviceOf(o)
		delete(v.slices[k], o.Name)
		if len(v.slices[k]) == 0 {
			delete(v.slices, k)
		}
	}
	switch o := obj.(type) {
	case *corev1.Endpoints:
		v.own[store.KeyOf(o)] = o
	case *discoveryv1.EndpointSlice:
		k := serviceOf(o)
		if k.Name == "" {
			return
		}
		if v.slices[k] == nil {
			v.slices[k] = map[string]*discoveryv1.EndpointSlice{}
		}
		v.slices[k][o.Name] = o
	}
}

// serviceOf returns the Service that Endpoints or a slice belong to. Its name is empty if there is none.
func serviceOf(o store.Object) store.Key {
	switch o := o.(type) {
	case *corev1.Endpoints:
		return store.KeyOf(o)
	case *discoveryv1.EndpointSlice:
		return store.Key{Namespace: o.Namespace, Name: o.Labels[discoveryv1.LabelServiceName]}
	}
	return store.Key{}
}

// change moves the view past a change of the store, and returns what that changes in Endpoints.
func (v *endpointsView) change(e store.Event) []store.Event {
	now := e.After()
	var keys []store.Key // two if a slice goes from one Service to another
	for _, o := range []store.Object{e.Old, now} {
		if k := serviceOf(o); k.Name != "" && !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	before := make([]*corev1.Endpoints, len(keys))
	for i, k := range keys {
		before[i] = v.at(k)
	}
	v.replace(e.Old, now)
	var out []store.Event
	for i, k := range keys {
		// A watch that resumes after the first of two must get the second too, so the first has the revision before.
		revision := e.Revision - uint64(len(keys)-1-i)
		if c, ok := endpointsChange(before[i], v.at(k), revision); ok {
			out = append(out, c)
		}
	}
	return out
}

func endpointsChange(old, obj *corev1.Endpoints, revision uint64) (store.Event, bool) {
	e := store.Event{Revision: revision, Kind: store.KindEndpoints}
	switch {
	case old == nil && obj == nil:
		return e, false
	case old == nil:
		e.Type, e.Object = watch.Added, obj.DeepCopy()
	case obj == nil:
		e.Type, e.Object, e.Old = watch.Deleted, old.DeepCopy(), old
	default:
		e.Type, e.Object, e.Old = watch.Modified, obj.DeepCopy(), old
	}
	e.Object.SetResourceVersion(strconv.FormatUint(revision, 10))
	return e, true
}

// at returns the Endpoints of a Service, or nil.
func (v *endpointsView) at(k store.Key) *corev1.Endpoints {
	if e := v.own[k]; e != nil {
		return e
	}
	var all []*discoveryv1.EndpointSlice
	for _, name := range slices.Sorted(maps.Keys(v.slices[k])) {
		all = append(all, v.slices[k][name])
	}
	if len(all) == 0 {
		return nil
	}
	return endpointsOf(k, all)
}

// managedBy is the label of Endpoints that Kubernetes' endpoints controller writes (LabelManagedBy of that controller).
const managedBy = "endpoints.kubernetes.io/managed-by"

// endpointsOf sums up the slices of a Service. Endpoints have room for one address family: IPv4 if there is any of it.
func endpointsOf(k store.Key, all []*discoveryv1.EndpointSlice) *corev1.Endpoints {
	out := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{
		Namespace: k.Namespace, Name: k.Name, UID: all[0].UID, CreationTimestamp: all[0].CreationTimestamp,
		Labels: map[string]string{managedBy: "endpoint-controller"},
	}}
	out.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Endpoints"))
	maps.Copy(out.Labels, all[0].Labels)
	delete(out.Labels, discoveryv1.LabelServiceName)
	delete(out.Labels, discoveryv1.LabelManagedBy)
	family := all[0].AddressType
	var newest uint64
	for _, s := range all {
		if s.AddressType == discoveryv1.AddressTypeIPv4 {
			family = s.AddressType
		}
		n, _ := strconv.ParseUint(s.ResourceVersion, 10, 64) // the store wrote it
		newest = max(newest, n)
	}
	out.ResourceVersion = strconv.FormatUint(newest, 10)
	out.Subsets = subsetsOf(all, family)
	return out
}
