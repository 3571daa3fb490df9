// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab/cluster/store"
)

// The columns are those of Kubernetes, whose source is pkg/printers/internalversion/printers.go.
var printers = map[schema.GroupKind]printer{
	core("Namespace"): {columns("Status", "Age"), typed(func(n *corev1.Namespace) []any {
		return []any{n.Name, string(n.Status.Phase), age(n)}
	})},
	core("Node"): {columns("Status", "Roles", "Age", "Version", "|",
		"Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"), typed(nodeCells)},
	core("Pod"): {columns("Ready", "Status", "Restarts", "Age", "|",
		"IP", "Node", "Nominated Node", "Readiness Gates"), typed(podCells)},
	core("Service"): {columns("Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "|",
		"Selector"), typed(serviceCells)},
	core("Endpoints"): {columns("Endpoints", "Age"), typed(endpointsCells)},
	core("Event"):     {eventColumns, typed(eventCells)},
	{Group: eventsv1.GroupName, Kind: "Event"}: {eventColumns, func(o store.Object) []any {
		return eventCells(toCore(o).(*corev1.Event))
	}},
	{Group: appsv1.GroupName, Kind: "Deployment"}: {columns("Ready", "Up-to-date#", "Available#", "Age", "|",
		"Containers", "Images", "Selector"), typed(deploymentCells)},
	{Group: appsv1.GroupName, Kind: "ReplicaSet"}: {columns("Desired#", "Current#", "Ready#", "Age", "|",
		"Containers", "Images", "Selector"), typed(replicaSetCells)},
	{Group: appsv1.GroupName, Kind: "DaemonSet"}: {columns("Desired#", "Current#", "Ready#", "Up-to-date#",
		"Available#", "Node Selector", "Age", "|", "Containers", "Images", "Selector"), typed(daemonSetCells)},
	{Group: appsv1.GroupName, Kind: "StatefulSet"}: {columns("Ready", "Age", "|", "Containers", "Images"),
		typed(statefulSetCells)},
	{Group: appsv1.GroupName, Kind: "ControllerRevision"}: {columns("Controller", "Revision#", "Age"),
		typed(revisionCells)},
	{Group: policyv1.GroupName, Kind: "PodDisruptionBudget"}: {columns("Min Available", "Max Unavailable",
		"Allowed Disruptions#", "Age"), typed(budgetCells)},
	{Group: batchv1.GroupName, Kind: "Job"}: {columns("Status", "Completions", "Duration", "Age", "|",
		"Containers", "Images", "Selector"), typed(jobCells)},
	{Group: discoveryv1.GroupName, Kind: "EndpointSlice"}: {columns("AddressType", "Ports", "Endpoints", "Age"),
		typed(sliceCells)},
	{Group: networkingv1.GroupName, Kind: "NetworkPolicy"}: {columns("Pod-Selector", "Age"),
		typed(func(p *networkingv1.NetworkPolicy) []any {
			return []any{p.Name, metav1.FormatLabelSelector(&p.Spec.PodSelector), age(p)}
		})},
	core("ConfigMap"): {columns("Data#", "Age"), typed(func(c *corev1.ConfigMap) []any {
		return []any{c.Name, int64(len(c.Data) + len(c.BinaryData)), age(c)}
	})},
	core("Secret"): {columns("Type", "Data#", "Age"), typed(func(s *corev1.Secret) []any {
		return []any{s.Name, string(s.Type), int64(len(s.Data)), age(s)}
	})},
	core("ServiceAccount"): {columns("Secrets#", "Age"), typed(func(a *corev1.ServiceAccount) []any {
		return []any{a.Name, int64(len(a.Secrets)), age(a)}
	})},
	{Group: networkingv1.GroupName, Kind: "Ingress"}: {columns("Class", "Hosts", "Address", "Ports", "Age"),
		typed(ingressCells)},
	{Group: networkingv1.GroupName, Kind: "IngressClass"}: {columns("Controller", "Parameters", "Age"),
		typed(ingressClassCells)},
	{Group: networkingv1.GroupName, Kind: "IPAddress"}: {columns("ParentRef", "Age"), typed(ipAddressCells)},
	{Group: networkingv1.GroupName, Kind: "ServiceCIDR"}: {columns("CIDRs", "Age"),
		typed(func(c *networkingv1.ServiceCIDR) []any {
			return []any{c.Name, strings.Join(c.Spec.CIDRs, ","), age(c)}
		})},
	{Group: coordinationv1.GroupName, Kind: "Lease"}: {columns("Holder", "Age"),
		typed(func(l *coordinationv1.Lease) []any {
			return []any{l.Name, ptr.Deref(l.Spec.HolderIdentity, ""), age(l)}
		})},
}

func core(kind string) schema.GroupKind { return schema.GroupKind{Kind: kind} }

func typed[T store.Object](cells func(T) []any) func(store.Object) []any {
	return func(o store.Object) []any { return cells(o.(T)) }
}

func podCells(p *corev1.Pod) []any {
	return []any{
		p.Name, fmt.Sprintf("%d/%d", readyContainers(p), len(p.Spec.Containers)), podStatus(p), fmt.Sprint(restarts(p)),
		age(p),
		orNone(p.Status.PodIP), orNone(p.Spec.NodeName), orNone(p.Status.NominatedNodeName), readinessGates(p),
	}
}

// readyContainers counts the containers that are ready. The kubelet of a lab reports only the status of the pod.
func readyContainers(p *corev1.Pod) int {
	if len(p.Status.ContainerStatuses) == 0 {
		if holds(p, corev1.PodReady) {
			return len(p.Spec.Containers)
		}
		return 0
	}
	n := 0
	for _, c := range p.Status.ContainerStatuses {
		if c.Ready {
			n++
		}
	}
	return n
}

func holds(p *corev1.Pod, t corev1.PodConditionType) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == t && c.Status == corev1.ConditionTrue
	})
}

func restarts(p *corev1.Pod) int32 {
	var n int32
	for _, c := range p.Status.ContainerStatuses {
		n += c.RestartCount
	}
	return n
}

func podStatus(p *corev1.Pod) string {
	over := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	if p.DeletionTimestamp != nil && !over {
		return "Terminating"
	}
	for _, c := range slices.Backward(p.Status.ContainerStatuses) {
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			return c.State.Waiting.Reason
		case c.State.Terminated != nil && c.State.Terminated.Reason != "":
			return c.State.Terminated.Reason
		case c.State.Terminated != nil:
			return fmt.Sprintf("ExitCode:%d", c.State.Terminated.ExitCode)
		}
	}
	return cmp.Or(p.Status.Reason, string(p.Status.Phase), unknown)
}

func readinessGates(p *corev1.Pod) string {
	if len(p.Spec.ReadinessGates) == 0 {
		return none
	}
	n := 0
	for _, g := range p.Spec.ReadinessGates {
		if holds(p, g.ConditionType) {
			n++
		}
	}
	return fmt.Sprintf("%d/%d", n, len(p.Spec.ReadinessGates))
}

var eventColumns = []metav1.TableColumnDefinition{
	{Name: "Last Seen", Type: "string"},
	{Name: "Type", Type: "string"},
	{Name: "Reason", Type: "string"},
	{Name: "Object", Type: "string"},
	{Name: "Subobject", Type: "string", Priority: 1},
	{Name: "Source", Type: "string", Priority: 1},
	{Name: "Message", Type: "string"},
	{Name: "First Seen", Type: "string", Priority: 1},
	{Name: "Count", Type: "integer", Priority: 1},
	{Name: "Name", Type: "string", Priority: 1, Format: "name"},
}

func eventCells(e *corev1.Event) []any {
	first := e.FirstTimestamp.Time
	if first.IsZero() {
		first = e.EventTime.Time
	}
	count := max(1, e.Count)
	if e.Series != nil {
		count = e.Series.Count
	}
	target := strings.ToLower(e.InvolvedObject.Kind)
	if e.InvolvedObject.Name != "" {
		target += "/" + e.InvolvedObject.Name
	}
	source := cmp.Or(e.Source.Component, e.ReportingController)
	if host := cmp.Or(e.Source.Host, e.ReportingInstance); host != "" {
		source += ", " + host
	}
	return []any{
		since(store.LastSeen(e)), e.Type, e.Reason, target, e.InvolvedObject.FieldPath, source,
		strings.TrimSpace(e.Message), since(first), int64(count), e.Name,
	}
}
