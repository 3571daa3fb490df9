// SPDX-License-Identifier: Apache-2.0

package store

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// daemonTolerations are those that every pod of a DaemonSet has (pkg/controller/daemon/util).
var daemonTolerations = []corev1.Toleration{
	{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
}

// reconcileDaemonSet makes one pod on every node that its template fits.
func (tx *Tx) reconcileDaemonSet(key Key) {
	d := tx.s.daemonSets.objects[key]
	if d == nil {
		return
	}
	if d.DeletionTimestamp == nil {
		tx.adopt(d, d.Spec.Selector)
		tx.numberRevision(d, &d.Spec.Template, appsv1.ControllerRevisionHashLabelKey)
		pod := podOf(d, &d.Spec.Template, map[string]string{
			appsv1.ControllerRevisionHashLabelKey: templateHash(d.Name, &d.Spec.Template),
		})
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, daemonTolerations...)
		tx.placeDaemons(d, pod)
		if d.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType {
			tx.replaceDaemons(d)
		}
		tx.tidyDaemonRevisions(d)
	}
	tx.reportDaemonSet(d)
}

// placeDaemons makes the pods that are missing, and deletes those that are over or on nodes that they do not fit.
func (tx *Tx) placeDaemons(d *appsv1.DaemonSet, pod *corev1.Pod) {
	on := map[string]bool{}
	for _, p := range tx.podsOwnedBy(d) {
		node := tx.s.nodes.objects[Key{"", p.Spec.NodeName}]
		if isOver(p) || node == nil || !suits(node, pod) || isActive(p) && on[p.Spec.NodeName] {
			tx.deletePods(p)
		}
		if _, there := tx.s.pods.objects[KeyOf(p)]; there {
			on[p.Spec.NodeName] = true // also while it is ending
		}
	}
	for _, n := range tx.s.nodes.list() {
		if suits(n, pod) && !on[n.Name] {
			c := copyOf(pod)
			c.Spec.NodeName = n.Name
			setCondition(c, corev1.PodScheduled, corev1.ConditionTrue, tx.now)
			tx.createPod(d, c, d.Name+"-")
		}
	}
}

// replaceDaemons deletes pods of an older template, those that are not ready at once, and as many others
// as may lack.
func (tx *Tx) replaceDaemons(d *appsv1.DaemonSet) {
	hash := templateHash(d.Name, &d.Spec.Template)
	all := tx.podsOwnedBy(d)
	may := 1
	if u := d.Spec.UpdateStrategy.RollingUpdate; u != nil && u.MaxUnavailable != nil {
		may = max(1, scaled(u.MaxUnavailable, len(all), true))
	}
	may -= int(count(all, func(p *corev1.Pod) bool {
		return !isActive(p) || !tx.isAvailable(d, p, d.Spec.MinReadySeconds)
	}))
	for _, p := range all {
		if p.Labels[appsv1.ControllerRevisionHashLabelKey] == hash || !isActive(p) {
			continue
		}
		if !tx.isAvailable(d, p, d.Spec.MinReadySeconds) {
			tx.deletePods(p)
		} else if may > 0 {
			may--
			tx.deletePods(p)
		}
	}
}

func (tx *Tx) reportDaemonSet(d *appsv1.DaemonSet) {
	hash := templateHash(d.Name, &d.Spec.Template)
	pods := those(tx.podsOwnedBy(d), isActive)
	probe := podOf(d, &d.Spec.Template, nil)
	probe.Spec.Tolerations = append(probe.Spec.Tolerations, daemonTolerations...)
	want := count(tx.s.nodes.list(), func(n *corev1.Node) bool { return suits(n, probe) })
	available := tx.availableOf(d, pods, d.Spec.MinReadySeconds)
	c := copyOf(d)
	c.Status = appsv1.DaemonSetStatus{
		CurrentNumberScheduled: int32(len(pods)), DesiredNumberScheduled: want, NumberReady: count(pods, isReady),
		NumberAvailable: available, NumberUnavailable: max(0, want-available), ObservedGeneration: d.Generation,
		UpdatedNumberScheduled: count(pods, func(p *corev1.Pod) bool {
			return p.Labels[appsv1.ControllerRevisionHashLabelKey] == hash
		}),
		Conditions: d.Status.Conditions,
	}
	tx.put(ResourceOf(c), c)
}
