// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// settle runs the controllers until they converge. It ends because a controller writes only differences.
func (tx *Tx) settle() {
	tx.settling = true
	for tx.hasWork() {
		drain(tx.namespaces, tx.furnish)
		for _, c := range controllers() {
			drain(tx.work[c.kind], func(k Key) { c.reconcile(tx, k) })
		}
		if tx.schedule {
			tx.schedule = false
			tx.scheduleAll()
		}
		drain(tx.services, tx.reconcileService)
		drain(tx.endpoints, tx.mirror)
		drain(tx.addresses, tx.reconcileAddress)
	}
}

func (tx *Tx) hasWork() bool {
	for _, set := range tx.work {
		if len(set) > 0 {
			return true
		}
	}
	return tx.schedule || len(tx.services)+len(tx.endpoints)+len(tx.namespaces)+len(tx.addresses) > 0
}

// reconcileService runs the controllers of a Service.
func (tx *Tx) reconcileService(key Key) {
	tx.balance(key)
	tx.reconcileSlices(key)
}

// drain reconciles what the set held at the beginning, and empties the set.
func drain(set keyset, reconcile func(Key)) {
	keys := sorted(set)
	clear(set)
	for _, k := range keys {
		reconcile(k)
	}
}

// touched notes which controllers have to look at a change. Either object may be nil.
func (tx *Tx) touched(k Kind, old, obj Object) {
	for _, o := range []Object{old, obj} {
		if o == nil {
			continue
		}
		tx.touchedWorkload(k, o)
		tx.touchedAccount(k, o)
		tx.touchedAddresses(o)
		switch o := o.(type) {
		case *corev1.Pod:
			tx.touchedPod(o, obj != nil)
		case *corev1.Service:
			tx.services[KeyOf(o)] = struct{}{}
			tx.endpoints[KeyOf(o)] = struct{}{}
		case *corev1.Endpoints:
			tx.endpoints[KeyOf(o)] = struct{}{}
		case *discoveryv1.EndpointSlice:
			// Someone meddles with the controller's slices.
			if !tx.settling && o.Labels[discoveryv1.LabelManagedBy] == sliceManager {
				tx.services[Key{o.Namespace, o.Labels[discoveryv1.LabelServiceName]}] = struct{}{}
			}
		}
	}
	if k == KindNode {
		tx.touchedNode(old, obj)
	}
}

func (tx *Tx) touchedPod(p *corev1.Pod, exists bool) {
	tx.touchedBudgets(p)
	for _, k := range tx.s.servicesSelecting(p) {
		tx.services[k] = struct{}{}
	}
	if (!exists || isOver(p)) && len(tx.s.index.podsByNode[""]) > 0 {
		tx.schedule = true // it may have left a port, or have kept others away
	}
	if exists && p.Spec.NodeName == "" {
		tx.schedule = true
	}
}

// touchedNode looks at pods that may fit now, and at the slices that name the zone of the node.
func (tx *Tx) touchedNode(old, obj Object) {
	tx.schedule = true
	for k := range tx.s.daemonSets.objects {
		tx.work[KindDaemonSet][k] = struct{}{}
	}
	for k, svc := range tx.s.services.objects {
		if wantsTopology(svc) {
			tx.services[k] = struct{}{}
		}
	}
	zone := corev1.LabelTopologyZone
	if old != nil && obj != nil && old.GetLabels()[zone] == obj.GetLabels()[zone] {
		return
	}
	for k := range tx.s.index.podsByNode[cmp.Or(obj, old).GetName()] {
		for _, svc := range tx.s.servicesSelecting(tx.s.pods.objects[k]) {
			tx.services[svc] = struct{}{}
		}
	}
}
