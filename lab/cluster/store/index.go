// SPDX-License-Identifier: Apache-2.0

package store

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

type keyset = map[Key]struct{}

func sorted(s keyset) []Key { return slices.SortedFunc(maps.Keys(s), compareKeys) }

// multimap holds sets, and drops a set when it becomes empty.
type multimap[K, V comparable] map[K]map[V]struct{}

// file adds (sign +1) or removes (sign -1) a value.
func (m multimap[K, V]) file(at K, v V, sign int) {
	if sign < 0 {
		delete(m[at], v)
		if len(m[at]) == 0 {
			delete(m, at)
		}
		return
	}
	if m[at] == nil {
		m[at] = map[V]struct{}{}
	}
	m[at][v] = struct{}{}
}

// label is a label of an object in a namespace.
type label struct{ namespace, key, value string }

// ref names an object of any kind.
type ref struct {
	kind Kind
	key  Key
}

// group is the unit that the scheduler spreads evenly: the pods of one controller, or the bare pods of a namespace.
type group struct {
	namespace string
	owner     types.UID
}

// index answers the controllers and allocators in constant time. Every write to the tables goes through replace.
type index struct {
	podsByLabel     multimap[label, Key]
	servicesByLabel multimap[label, Key] // each Service with a selector is filed under one of its pairs
	slicesByService multimap[Key, Key]
	podsByNode      multimap[string, Key]    // those without a node under ""
	spread          map[group]map[string]int // pods per node
	owned           multimap[types.UID, ref]
	addresses       map[netip.Addr]Key // ClusterIPs and the Services that hold them
	nodePorts       map[int32]Key      // NodePorts and healthCheckNodePorts, of any protocol
	shy             int                // pods with anti-affinity
}

func newIndex() *index {
	return &index{
		podsByLabel:     multimap[label, Key]{},
		servicesByLabel: multimap[label, Key]{},
		slicesByService: multimap[Key, Key]{},
		podsByNode:      multimap[string, Key]{},
		spread:          map[group]map[string]int{},
		owned:           multimap[types.UID, ref]{},
		addresses:       map[netip.Addr]Key{},
		nodePorts:       map[int32]Key{},
	}
}

// replace updates the index after one object has replaced another. Either may be nil.
func (x *index) replace(k Kind, old, obj Object) {
	if old != nil {
		x.each(k, old, -1)
	}
	if obj != nil {
		x.each(k, obj, +1)
	}
}

// each adds (sign +1) or removes (sign -1) everything the index holds of an object.
func (x *index) each(k Kind, o Object, sign int) {
	key := KeyOf(o)
	for _, r := range o.GetOwnerReferences() {
		x.owned.file(r.UID, ref{k, key}, sign)
	}
	switch o := o.(type) {
	case *corev1.Pod:
		x.pod(key, o, sign)
	case *corev1.Service:
		x.service(key, o, sign)
	case *discoveryv1.EndpointSlice:
		if name := o.Labels[discoveryv1.LabelServiceName]; name != "" {
			x.slicesByService.file(Key{o.Namespace, name}, key, sign)
		}
	}
}

func (x *index) pod(key Key, p *corev1.Pod, sign int) {
	for k, v := range p.Labels {
		x.podsByLabel.file(label{p.Namespace, k, v}, key, sign)
	}
	x.podsByNode.file(p.Spec.NodeName, key, sign)
	if a := p.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		x.shy += sign
	}
	if p.Spec.NodeName == "" {
		return
	}
	g := groupOf(p)
	if x.spread[g] == nil {
		x.spread[g] = map[string]int{}
	}
	x.spread[g][p.Spec.NodeName] += sign
	if x.spread[g][p.Spec.NodeName] == 0 {
		delete(x.spread[g], p.Spec.NodeName)
	}
	if len(x.spread[g]) == 0 {
		delete(x.spread, g)
	}
}

func groupOf(p *corev1.Pod) group {
	g := group{namespace: p.Namespace}
	if c := metav1.GetControllerOfNoCopy(p); c != nil {
		g.owner = c.UID
	}
	return g
}

func (x *index) service(key Key, svc *corev1.Service, sign int) {
	if len(svc.Spec.Selector) > 0 {
		x.servicesByLabel.file(filedUnder(svc), key, sign)
	}
	for _, s := range svc.Spec.ClusterIPs {
		if ip, err := netip.ParseAddr(s); err == nil {
			hold(x.addresses, ip, key, sign)
		}
	}
	for _, p := range nodePortsOf(svc) {
		hold(x.nodePorts, p, key, sign)
	}
}

func hold[K comparable](m map[K]Key, at K, k Key, sign int) {
	if sign > 0 {
		m[at] = k
	} else {
		delete(m, at)
	}
}

// filedUnder returns the first pair of a Service's selector.
func filedUnder(svc *corev1.Service) label {
	first := slices.Min(slices.Collect(maps.Keys(svc.Spec.Selector)))
	return label{svc.Namespace, first, svc.Spec.Selector[first]}
}

// podsSelectedBy lists the pods a Service selects, in order. A Service without a selector selects none.
func (s *Store) podsSelectedBy(svc *corev1.Service) []*corev1.Pod {
	if len(svc.Spec.Selector) == 0 {
		return nil
	}
	var fewest keyset
	for k, v := range svc.Spec.Selector {
		pods := s.index.podsByLabel[label{svc.Namespace, k, v}]
		if len(pods) == 0 {
			return nil
		}
		if fewest == nil || len(pods) < len(fewest) {
			fewest = pods
		}
	}
	var out []*corev1.Pod
	for _, k := range sorted(fewest) {
		if p := s.pods.objects[k]; selects(svc, p) {
			out = append(out, p)
		}
	}
	return out
}

// servicesSelecting lists the Services that select a pod, in no order.
func (s *Store) servicesSelecting(p *corev1.Pod) []Key {
	var out []Key
	for k, v := range p.Labels {
		for key := range s.index.servicesByLabel[label{p.Namespace, k, v}] {
			if selects(s.services.objects[key], p) {
				out = append(out, key)
			}
		}
	}
	return out
}

func selects(svc *corev1.Service, p *corev1.Pod) bool {
	for k, v := range svc.Spec.Selector {
		if got, ok := p.Labels[k]; !ok || got != v {
			return false
		}
	}
	return len(svc.Spec.Selector) > 0
}
