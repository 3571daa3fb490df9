// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab/cluster/store"
)

// report writes the state of the containers to the pod's status.
func (p *Pod) report() {
	p.reporting.Lock() // a later state is not overwritten by an earlier one
	defer p.reporting.Unlock()
	_ = store.UpdateStatus(p.kubelet.config.Store, p.key.Namespace, p.key.Name, func(now *corev1.Pod) {
		if now.UID == p.uid { // else it has been deleted, as if there were none
			p.mu.Lock()
			defer p.mu.Unlock()
			p.describeLocked(now)
		}
	})
}

func (p *Pod) describeLocked(now *corev1.Pod) {
	st := &now.Status
	st.Phase, st.Message = p.phaseLocked(), p.message
	if p.reason != "" {
		st.Reason = p.reason
	}
	p.noteEvictionLocked(now)
	st.StartTime = &p.began
	st.QOSClass = corev1.PodQOSBestEffort
	st.PodIP, st.PodIPs = "", nil
	for _, a := range p.Addrs {
		st.PodIPs = append(st.PodIPs, corev1.PodIP{IP: a.String()})
	}
	if len(st.PodIPs) > 0 {
		st.PodIP = st.PodIPs[0].IP
	}
	store.HostStatus(p.HostAddrs...)(now)
	st.InitContainerStatuses = statusesLocked(p.inits)
	st.ContainerStatuses = statusesLocked(p.mains)
	p.conditionsLocked(now)
}

// phaseLocked returns the pod's phase: it is running once every main container has started, as in getPhase of
// pkg/kubelet/kubelet_pods.go.
func (p *Pod) phaseLocked() corev1.PodPhase {
	if p.phase != corev1.PodPending {
		return p.phase
	}
	waits := func(u *unit) bool { return u.state.Running == nil && u.state.Terminated == nil && u.restarts == 0 }
	if !p.ready || slices.ContainsFunc(p.mains, waits) {
		return corev1.PodPending
	}
	return corev1.PodRunning
}

func statusesLocked(units []*unit) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for _, u := range units {
		s := corev1.ContainerStatus{
			Name: u.spec.Name, Image: u.spec.Image, State: u.state, LastTerminationState: u.last,
			Ready: u.ready, RestartCount: u.restarts, Started: ptr.To(u.started),
		}
		if u.run != nil || u.state.Terminated != nil {
			s.ContainerID, s.ImageID = u.id(), u.spec.Image
		}
		if u.role == initContainer && !u.sidecar() {
			s.Ready = u.succeededLocked()
		}
		out = append(out, s)
	}
	return out
}

// conditionsLocked sets the pod's conditions. Those of readiness gates are others' to set.
func (p *Pod) conditionsLocked(now *corev1.Pod) {
	over := p.phase == corev1.PodSucceeded || p.phase == corev1.PodFailed
	unready := func(u *unit) bool { return !u.ready && (u.role == mainContainer || u.sidecar()) }
	containersReady := !over && p.ready && !slices.ContainsFunc(p.units(), unready)
	reason := ""
	switch {
	case p.phase == corev1.PodSucceeded:
		reason = "PodCompleted"
	case !containersReady:
		reason = "ContainersNotReady"
	}
	gates := gatesAreOpen(now)
	set := func(t corev1.PodConditionType, is bool, reason string) {
		status := corev1.ConditionFalse
		if is {
			status, reason = corev1.ConditionTrue, ""
		}
		setCondition(&now.Status, t, status, reason)
	}
	set(corev1.PodScheduled, true, "")
	set(corev1.PodInitialized, p.ready || p.phase == corev1.PodSucceeded, "ContainersNotInitialized")
	set(corev1.ContainersReady, containersReady, reason)
	if containersReady && !gates {
		reason = "ReadinessGatesNotReady"
	}
	set(corev1.PodReady, containersReady && gates, reason)
}

func setCondition(st *corev1.PodStatus, t corev1.PodConditionType, is corev1.ConditionStatus, reason string) {
	i := slices.IndexFunc(st.Conditions, func(c corev1.PodCondition) bool { return c.Type == t })
	if i < 0 {
		i = len(st.Conditions)
		st.Conditions = append(st.Conditions, corev1.PodCondition{Type: t})
	}
	c := &st.Conditions[i]
	if c.Status != is {
		c.Status, c.LastTransitionTime = is, metav1.Now()
	}
	c.Reason = reason
}

// gatesAreOpen reports whether all conditions of a pod's readiness gates are true. Others set them.
func gatesAreOpen(p *corev1.Pod) bool {
	return !slices.ContainsFunc(p.Spec.ReadinessGates, func(g corev1.PodReadinessGate) bool {
		return !isTrue(p, g.ConditionType)
	})
}

func isTrue(p *corev1.Pod, t corev1.PodConditionType) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == t && c.Status == corev1.ConditionTrue
	})
}

// gatesHaveChanged reports whether a pod's condition Ready does not yet follow its readiness gates.
func gatesHaveChanged(p *corev1.Pod) bool {
	return len(p.Spec.ReadinessGates) > 0 && isTrue(p, corev1.ContainersReady) &&
		isTrue(p, corev1.PodReady) != gatesAreOpen(p)
}
