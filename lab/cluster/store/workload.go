// SPDX-License-Identifier: Apache-2.0

package store

import (
	"net/netip"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

func defaultDeployment(d *appsv1.Deployment) {
	setDefault(&d.Spec.Replicas, ptr.To[int32](1))
	setDefault(&d.Spec.RevisionHistoryLimit, ptr.To[int32](10))
	setDefault(&d.Spec.ProgressDeadlineSeconds, ptr.To[int32](600))
	setDefault(&d.Spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if d.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		quarter := intstr.FromString("25%")
		setDefault(&d.Spec.Strategy.RollingUpdate, &appsv1.RollingUpdateDeployment{})
		update := *d.Spec.Strategy.RollingUpdate
		setDefault(&update.MaxUnavailable, &quarter)
		setDefault(&update.MaxSurge, &quarter)
		d.Spec.Strategy.RollingUpdate = &update
	}
	defaultPodSpec(&d.Spec.Template.Spec)
}

func defaultPod(p *corev1.Pod) {
	defaultPodSpec(&p.Spec)
	setDefault(&p.Spec.EnableServiceLinks, ptr.To(corev1.DefaultEnableServiceLinks)) // templates do without
	setDefault(&p.Status.Phase, corev1.PodPending)
	setDefault(&p.Status.QOSClass, qosClassOf(&p.Spec))
}

func defaultPodSpec(spec *corev1.PodSpec) {
	setDefault(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	setDefault(&spec.DNSPolicy, corev1.DNSClusterFirst)
	setDefault(&spec.SchedulerName, corev1.DefaultSchedulerName)
	setDefault(&spec.TerminationGracePeriodSeconds, ptr.To[int64](corev1.DefaultTerminationGracePeriodSeconds))
	setDefault(&spec.SecurityContext, &corev1.PodSecurityContext{})
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			defaultContainer(&list[i], spec.HostNetwork)
		}
	}
}

func defaultContainer(c *corev1.Container, hostNetwork bool) {
	setDefault(&c.ImagePullPolicy, pullPolicyOf(c.Image))
	setDefault(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	setDefault(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		p := &c.Ports[i]
		setDefault(&p.Protocol, corev1.ProtocolTCP)
		if hostNetwork {
			setDefault(&p.HostPort, p.ContainerPort)
		}
	}
}

// pullPolicyOf returns Always for images that may change under their name.
func pullPolicyOf(image string) corev1.PullPolicy {
	_, tag, tagged := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	if !tagged && !strings.Contains(image, "@") || tag == "latest" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// defaultPodStatus keeps the old single address and the list in step.
func defaultPodStatus(p *corev1.Pod) {
	st := &p.Status
	switch {
	case len(st.PodIPs) > 0:
		st.PodIP = st.PodIPs[0].IP
	case st.PodIP != "":
		st.PodIPs = []corev1.PodIP{{IP: st.PodIP}}
	}
}

// qosClassOf returns the class of a pod by the CPU and memory that its containers ask for
// (https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/).
func qosClassOf(spec *corev1.PodSpec) corev1.PodQOSClass {
	asked, guaranteed := false, true
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit, limited := c.Resources.Limits[name]
			request, requested := c.Resources.Requests[name]
			asked = asked || limited || requested
			guaranteed = guaranteed && limited && (!requested || request.Equal(limit))
		}
	}
	switch {
	case !asked:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	default:
		return corev1.PodQOSBurstable
	}
}

// ReportRunning returns a function for UpdateStatus that sets the status of a running pod, as a kubelet does. addresses
// are those of the pod, the primary one first.
func ReportRunning(ready bool, addresses ...netip.Addr) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		p.Status.PodIPs, p.Status.PodIP = nil, ""
		for _, a := range addresses {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a.String()})
		}
		defaultPodStatus(p)
		status := corev1.ConditionFalse
		if ready {
			status = corev1.ConditionTrue
		}
		now := p.CreationTimestamp // a report has no clock, and nothing in the network depends on the time
		setCondition(p, corev1.PodInitialized, corev1.ConditionTrue, now)
		setCondition(p, corev1.ContainersReady, status, now)
		setCondition(p, corev1.PodReady, status, now)
	}
}

// HostStatus returns a function for UpdateStatus that sets the host addresses of a pod, as a kubelet does. addresses
// are those of the node, the primary one first.
func HostStatus(addresses ...netip.Addr) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.HostIPs, p.Status.HostIP = nil, ""
		for _, a := range addresses {
			p.Status.HostIPs = append(p.Status.HostIPs, corev1.HostIP{IP: a.String()})
		}
		if len(addresses) > 0 {
			p.Status.HostIP = addresses[0].String()
		}
	}
}

func setCondition(p *corev1.Pod, t corev1.PodConditionType, status corev1.ConditionStatus, now metav1.Time) {
	i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == t })
	if i < 0 {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: t, Status: status,
			LastTransitionTime: now})
		return
	}
	if c := &p.Status.Conditions[i]; c.Status != status {
		c.Status, c.LastTransitionTime = status, now
	}
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// isOver reports whether a pod has ended for good.
func isOver(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}
