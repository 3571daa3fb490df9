// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// scheduleAll gives pods a node that fits: the one that the pod prefers, then the one that its wishes to be spread
// favour, then the one with the fewest pods of the same controller, then the fewest pods, then by name. The status of a
// pod that fits nowhere says why.
func (tx *Tx) scheduleAll() {
	nodes := tx.s.nodes.list()
	if len(nodes) == 0 {
		return
	}
	for _, k := range sorted(tx.s.index.podsByNode[""]) {
		p := tx.s.pods.objects[k]
		if p.DeletionTimestamp != nil || isOver(p) {
			continue
		}
		c := copyOf(p)
		if n, why := tx.bestNode(nodes, p); n != nil {
			c.Spec.NodeName = n.Name
			setCondition(c, corev1.PodScheduled, corev1.ConditionTrue, tx.now)
			explain(c, corev1.PodScheduled, "", "")
			tx.record(Notice{About: p, Reason: "Scheduled", Component: corev1.DefaultSchedulerName,
				Message: fmt.Sprintf("Successfully assigned %s to %s", k, n.Name)})
		} else {
			c.Spec.NodeName = ""
			setCondition(c, corev1.PodScheduled, corev1.ConditionFalse, tx.now)
			explain(c, corev1.PodScheduled, corev1.PodReasonUnschedulable, why)
		}
		tx.put(ResourceOf(c), c)
	}
}

// explain sets the reason and the message of a condition.
func explain(p *corev1.Pod, t corev1.PodConditionType, reason, message string) {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == t {
			c.Reason, c.Message = reason, message
		}
	}
}

// bestNode returns the node for a pod, or why there is none, in the words of kube-scheduler.
func (tx *Tx) bestNode(nodes []*corev1.Node, p *corev1.Pod) (*corev1.Node, string) {
	var best *corev1.Node
	var least [4]int
	spread := tx.s.index.spread[groupOf(p)]
	reasons := map[string]int{}
	for _, n := range nodes {
		if why := tx.obstacle(n, p); why != "" {
			reasons[why]++
			continue
		}
		load := [4]int{-preference(n, p) - tx.attraction(n, p), tx.crowd(n, p), spread[n.Name],
			len(tx.s.index.podsByNode[n.Name])}
		if best == nil || slices.Compare(load[:], least[:]) < 0 {
			best, least = n, load
		}
	}
	if best != nil {
		return best, ""
	}
	var all []string
	for why, n := range reasons {
		all = append(all, fmt.Sprintf("%d %s", n, why))
	}
	slices.Sort(all)
	return nil, fmt.Sprintf("0/%d nodes are available: %s.", len(nodes), strings.Join(all, ", "))
}

// obstacle returns what keeps a pod from a node, or nothing.
func (tx *Tx) obstacle(n *corev1.Node, p *corev1.Pod) string {
	if why := mismatch(n, p); why != "" {
		return why
	}
	if hostPorts := hostPortsOf(p); len(hostPorts) > 0 {
		for k := range tx.s.index.podsByNode[n.Name] {
			if other := tx.s.pods.objects[k]; !isOver(other) && collide(hostPorts, hostPortsOf(other)) {
				return "node(s) didn't have free ports for the requested pod ports"
			}
		}
	}
	if why := tx.spreadObstacle(n, p); why != "" {
		return why
	}
	return tx.awayFromPods(n, p)
}

// suits reports whether a node is one for a pod, whatever else runs there.
func suits(n *corev1.Node, p *corev1.Pod) bool { return mismatch(n, p) == "" }

// mismatch returns why a node is not one for a pod, whatever else runs there.
func mismatch(n *corev1.Node, p *corev1.Pod) string {
	if !isChosen(n, p) {
		return "node(s) didn't match Pod's node affinity/selector"
	}
	return taintMismatch(n, p)
}

// taintMismatch returns the taint of a node that a pod does not tolerate, or nothing.
func taintMismatch(n *corev1.Node, p *corev1.Pod) string {
	closed := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	if n.Spec.Unschedulable && !tolerates(p, closed) {
		return "node(s) were unschedulable"
	}
	for _, t := range n.Spec.Taints {
		if t.Effect != corev1.TaintEffectPreferNoSchedule && !tolerates(p, t) {
			return fmt.Sprintf("node(s) had untolerated taint {%s: %s}", t.Key, t.Value)
		}
	}
	return ""
}

func tolerates(p *corev1.Pod, t corev1.Taint) bool {
	return slices.ContainsFunc(p.Spec.Tolerations, func(tol corev1.Toleration) bool {
		if tol.Effect != "" && tol.Effect != t.Effect || tol.Key != "" && tol.Key != t.Key {
			return false
		}
		return tol.Operator == corev1.TolerationOpExists || tol.Key != "" && tol.Value == t.Value
	})
}

// preference adds up the weights of what a pod prefers and a node is. A taint PreferNoSchedule counts against it.
func preference(n *corev1.Node, p *corev1.Pod) int {
	sum := 0
	for _, t := range n.Spec.Taints {
		if t.Effect == corev1.TaintEffectPreferNoSchedule && !tolerates(p, t) {
			sum--
		}
	}
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		for _, term := range a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			if matchesTerm(n, &term.Preference) {
				sum += int(term.Weight)
			}
		}
	}
	return sum
}

// hostPort is a port that a pod takes from its node.
type hostPort struct {
	protocol corev1.Protocol
	ip       string // empty for all
	port     int32
}

func hostPortsOf(p *corev1.Pod) []hostPort {
	var out []hostPort
	for _, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			if port.HostPort != 0 {
				ip := port.HostIP
				if ip == "0.0.0.0" || ip == "::" {
					ip = ""
				}
				out = append(out, hostPort{port.Protocol, ip, port.HostPort})
			}
		}
	}
	return out
}

func collide(a, b []hostPort) bool {
	return slices.ContainsFunc(a, func(x hostPort) bool {
		return slices.ContainsFunc(b, func(y hostPort) bool {
			return x.protocol == y.protocol && x.port == y.port && (x.ip == y.ip || x.ip == "" || y.ip == "")
		})
	})
}
