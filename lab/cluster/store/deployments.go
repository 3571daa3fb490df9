// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// reconcileDeployment makes as many pods of the present template as the Deployment wants. Pods of an older template
// stay until as many new ones are ready, unless the strategy is Recreate; there is no ReplicaSet between the two.
func (tx *Tx) reconcileDeployment(key Key) {
	d := tx.s.deployments.objects[key]
	if d == nil || d.DeletionTimestamp != nil {
		return
	}
	template := templateHash(d)
	var current, outdated []*corev1.Pod
	for _, p := range tx.podsOf(d) {
		if p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == template {
			current = append(current, p)
		} else {
			outdated = append(outdated, p)
		}
	}
	want := int(*d.Spec.Replicas)
	current = tx.keepBest(current, want)
	for len(current) < want {
		current = append(current, tx.newPod(d, template))
	}
	keep := max(0, want-countReady(current))
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		keep = 0
	}
	outdated = tx.keepBest(outdated, keep)
	tx.reportDeployment(d, current, outdated)
}

// podsOf lists the pods of a Deployment that count: those that are neither over nor about to be.
func (tx *Tx) podsOf(d *appsv1.Deployment) []*corev1.Pod {
	keys := keyset{}
	for r := range tx.s.index.owned[d.UID] {
		if r.kind == KindPod {
			keys[r.key] = struct{}{}
		}
	}
	var out []*corev1.Pod
	for _, k := range sorted(keys) {
		if p := tx.s.pods.objects[k]; p.DeletionTimestamp == nil && !isOver(p) {
			out = append(out, p)
		}
	}
	return out
}

// keepBest removes all but the best n pods.
func (tx *Tx) keepBest(pods []*corev1.Pod, n int) []*corev1.Pod {
	slices.SortStableFunc(pods, betterToKeep)
	for len(pods) > n {
		tx.dropRef(ref{KindPod, KeyOf(pods[len(pods)-1])}, DeleteOptions{})
		pods = pods[:len(pods)-1]
	}
	return pods
}

// betterToKeep orders ready pods before others and older pods before younger, so that the last is the one to give up.
func betterToKeep(a, b *corev1.Pod) int {
	if ra, rb := isReady(a), isReady(b); ra != rb {
		if ra {
			return -1
		}
		return 1
	}
	return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
}

func countReady(pods []*corev1.Pod) int {
	n := 0
	for _, p := range pods {
		if isReady(p) {
			n++
		}
	}
	return n
}

// newPod makes one more pod. Its name depends on the Deployment, the template and how many pods there have been.
func (tx *Tx) newPod(d *appsv1.Deployment, template string) *corev1.Pod {
	r := ResourceOf((*corev1.Pod)(nil))
	p := &corev1.Pod{ObjectMeta: *d.Spec.Template.ObjectMeta.DeepCopy(), Spec: *d.Spec.Template.Spec.DeepCopy()}
	p.Namespace = d.Namespace
	p.GenerateName = fmt.Sprintf("%s-%s-", d.Name, template)
	for taken := true; taken; {
		serial := tx.s.serials[KeyOf(d)]
		tx.s.serials[KeyOf(d)]++
		p.Name = p.GenerateName + suffix(fmt.Sprintf("%s%d", p.GenerateName, serial))
		_, taken = tx.s.pods.objects[KeyOf(p)]
	}
	if p.Labels == nil {
		p.Labels = map[string]string{}
	}
	p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = template
	p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d,
		appsv1.SchemeGroupVersion.WithKind(string(KindDeployment)))}
	p.Status.Phase = corev1.PodPending
	tx.put(r, p)
	return p
}

// templateHash returns a name for a template, such that different templates have different ones.
func templateHash(d *appsv1.Deployment) string {
	template, err := json.Marshal(d.Spec.Template)
	if err != nil {
		panic(err) // a type of k8s.io/api that does not marshal
	}
	return suffix(string(template)) + suffix(string(template)+d.Name)
}

func (tx *Tx) reportDeployment(d *appsv1.Deployment, current, outdated []*corev1.Pod) {
	c := copyOf(d)
	ready := int32(countReady(current) + countReady(outdated))
	all := int32(len(current) + len(outdated))
	c.Status = appsv1.DeploymentStatus{
		ObservedGeneration:  d.Generation,
		Replicas:            all,
		UpdatedReplicas:     int32(len(current)),
		ReadyReplicas:       ready,
		AvailableReplicas:   ready,
		UnavailableReplicas: max(0, all-ready),
		Conditions:          c.Status.Conditions,
	}
	tx.setDeploymentConditions(c)
	tx.put(ResourceOf(d), c)
}

// scheduleAll gives pods the node with the fewest pods of the same controller, then the fewest pods, then by name.
func (tx *Tx) scheduleAll() {
	nodes := tx.s.nodes.list()
	if len(nodes) == 0 {
		return
	}
	r := ResourceOf((*corev1.Pod)(nil))
	for _, k := range sorted(tx.s.index.podsByNode[""]) {
		p := tx.s.pods.objects[k]
		if n := tx.bestNode(nodes, p); n != nil && p.DeletionTimestamp == nil && !isOver(p) {
			c := copyOf(p)
			c.Spec.NodeName = n.Name
			setCondition(c, corev1.PodScheduled, corev1.ConditionTrue, tx.now)
			tx.put(r, c)
		}
	}
}

func (tx *Tx) bestNode(nodes []*corev1.Node, p *corev1.Pod) *corev1.Node {
	var best *corev1.Node
	var least [2]int
	spread := tx.s.index.spread[groupOf(p)]
	for _, n := range nodes {
		if !fits(n, p) {
			continue
		}
		load := [2]int{spread[n.Name], len(tx.s.index.podsByNode[n.Name])}
		if best == nil || slices.Compare(load[:], least[:]) < 0 {
			best, least = n, load
		}
	}
	return best
}

func fits(n *corev1.Node, p *corev1.Pod) bool {
	if n.Spec.Unschedulable {
		return false
	}
	for k, v := range p.Spec.NodeSelector {
		if n.Labels[k] != v {
			return false
		}
	}
	for _, t := range n.Spec.Taints {
		if t.Effect != corev1.TaintEffectPreferNoSchedule && !tolerates(p, t) {
			return false
		}
	}
	return true
}

func tolerates(p *corev1.Pod, t corev1.Taint) bool {
	return slices.ContainsFunc(p.Spec.Tolerations, func(tol corev1.Toleration) bool {
		if tol.Effect != "" && tol.Effect != t.Effect || tol.Key != "" && tol.Key != t.Key {
			return false
		}
		return tol.Operator == corev1.TolerationOpExists || tol.Key != "" && tol.Value == t.Value
	})
}

func ownerDeployment(p *corev1.Pod) (Key, bool) {
	if c := metav1.GetControllerOfNoCopy(p); c != nil && c.Kind == string(KindDeployment) {
		return Key{p.Namespace, c.Name}, true
	}
	return Key{}, false
}

// setDeploymentConditions sets conditions in the words of Kubernetes' controller (deployment_util.go).
func (tx *Tx) setDeploymentConditions(d *appsv1.Deployment) {
	st, want := &d.Status, *d.Spec.Replicas
	available := appsv1.DeploymentCondition{
		Type: appsv1.DeploymentAvailable, Status: corev1.ConditionFalse,
		Reason: "MinimumReplicasUnavailable", Message: "Deployment does not have minimum availability.",
	}
	if st.AvailableReplicas >= want-maxUnavailable(d) {
		available.Status = corev1.ConditionTrue
		available.Reason, available.Message = "MinimumReplicasAvailable", "Deployment has minimum availability."
	}
	progressing := appsv1.DeploymentCondition{
		Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue,
		Reason: "ReplicaSetUpdated", Message: "Pods of the present template are starting.",
	}
	if st.UpdatedReplicas == want && st.Replicas == want && st.AvailableReplicas == want {
		progressing.Reason, progressing.Message = "NewReplicaSetAvailable",
			"All pods are of the present template, and available."
	}
	tx.setDeploymentCondition(st, available)
	tx.setDeploymentCondition(st, progressing)
}

func (tx *Tx) setDeploymentCondition(st *appsv1.DeploymentStatus, now appsv1.DeploymentCondition) {
	now.LastUpdateTime, now.LastTransitionTime = tx.now, tx.now
	i := slices.IndexFunc(st.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == now.Type })
	if i < 0 {
		st.Conditions = append(st.Conditions, now)
		return
	}
	was := &st.Conditions[i]
	if was.Status == now.Status {
		if was.Reason == now.Reason {
			return
		}
		now.LastTransitionTime = was.LastTransitionTime
	}
	*was = now
}

// maxUnavailable returns how many of the replicas a Deployment may lack and still count as available.
func maxUnavailable(d *appsv1.Deployment) int32 {
	update, want := d.Spec.Strategy.RollingUpdate, int(*d.Spec.Replicas)
	if d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || update == nil || want == 0 {
		return 0
	}
	unavailable := scaled(update.MaxUnavailable, want, false)
	if unavailable == 0 && scaled(update.MaxSurge, want, true) == 0 {
		unavailable = 1 // else nothing could ever be replaced
	}
	return int32(min(unavailable, want))
}

// scaled returns a number, or a percentage of the whole. An invalid value counts as 0.
func scaled(v *intstr.IntOrString, whole int, up bool) int {
	if v == nil {
		return 0
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(v, whole, up)
	if err != nil {
		return 0
	}
	return n
}
