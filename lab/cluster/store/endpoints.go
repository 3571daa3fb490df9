// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// What the EndpointSlice controller of Kubernetes writes on its slices, and how many endpoints it puts into one.
const (
	sliceManager      = "endpointslice-controller.k8s.io"
	endpointsPerSlice = 100
)

// reconcileSlices makes slices of the pods that a Service selects. A change of one pod changes one slice.
func (tx *Tx) reconcileSlices(key Key) {
	svc := tx.s.services.objects[key]
	if svc == nil {
		return // its slices went with it
	}
	families := svc.Spec.IPFamilies
	switch {
	case svc.Spec.Type == corev1.ServiceTypeExternalName:
		families = nil
	case len(svc.Spec.Selector) == 0:
		return // slices are written by hand, and those from before the selector went away stay as they are
	}
	pods := tx.s.podsSelectedBy(svc)
	existing := tx.managedSlices(key)
	for _, f := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		t := discoveryv1.AddressType(f)
		mine := slices.DeleteFunc(slices.Clone(existing), func(s *discoveryv1.EndpointSlice) bool {
			return s.AddressType != t
		})
		if slices.Contains(families, f) {
			tx.reconcileFamily(svc, t, tx.backends(svc, t, pods), mine)
			continue
		}
		for _, s := range mine {
			tx.removeRef(ref{KindEndpointSlice, KeyOf(s)})
		}
	}
}

// managedSlices lists the slices of a Service that the controller made.
func (tx *Tx) managedSlices(svc Key) []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	for _, k := range sorted(tx.s.index.slicesByService[svc]) {
		if s := tx.s.slices.objects[k]; s.Labels[discoveryv1.LabelManagedBy] == sliceManager {
			out = append(out, s)
		}
	}
	return out
}

// backends are the endpoints of a family with the same ports: pods may resolve a named port differently.
type backends struct {
	ports     []discoveryv1.EndpointPort
	endpoints []discoveryv1.Endpoint
}

// portsKey returns equal for equal sets of ports.
func portsKey(ports []discoveryv1.EndpointPort) string {
	var parts []string
	for _, p := range ports {
		parts = append(parts, fmt.Sprintf("%q %s %d %q", ptr.Deref(p.Name, ""), ptr.Deref(p.Protocol, ""),
			ptr.Deref(p.Port, 0), ptr.Deref(p.AppProtocol, "")))
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

// backends groups the endpoints that the slices of one address type shall hold by their ports.
func (tx *Tx) backends(svc *corev1.Service, t discoveryv1.AddressType, pods []*corev1.Pod) map[string]*backends {
	out := map[string]*backends{}
	for _, p := range pods {
		e, ok := tx.endpoint(svc, t, p)
		if !ok {
			continue
		}
		ports := endpointPorts(svc, p)
		k := portsKey(ports)
		if out[k] == nil {
			out[k] = &backends{ports: ports}
		}
		out[k].endpoints = append(out[k].endpoints, e)
	}
	if wantsTopology(svc) {
		tx.distribute(out)
	}
	return out
}

// endpoint returns the endpoint of a pod; false if it has no address of the family, is over, or has no node.
func (tx *Tx) endpoint(svc *corev1.Service, t discoveryv1.AddressType, p *corev1.Pod) (discoveryv1.Endpoint, bool) {
	var addresses []string
	for _, a := range p.Status.PodIPs {
		if ip, err := netip.ParseAddr(a.IP); err == nil && string(familyOf(ip)) == string(t) {
			addresses = append(addresses, a.IP)
		}
	}
	node := tx.s.nodes.objects[Key{"", p.Spec.NodeName}]
	if len(addresses) == 0 || isOver(p) || node == nil && !svc.Spec.PublishNotReadyAddresses {
		return discoveryv1.Endpoint{}, false
	}
	serving, terminating := isReady(p), p.DeletionTimestamp != nil
	ready := svc.Spec.PublishNotReadyAddresses || serving && !terminating
	e := discoveryv1.Endpoint{
		Addresses:  addresses,
		Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating},
		TargetRef:  &corev1.ObjectReference{Kind: string(KindPod), Namespace: p.Namespace, Name: p.Name, UID: p.UID},
	}
	if p.Spec.NodeName != "" {
		e.NodeName = ptr.To(p.Spec.NodeName)
	}
	if node != nil && node.Labels[corev1.LabelTopologyZone] != "" {
		e.Zone = ptr.To(node.Labels[corev1.LabelTopologyZone])
	}
	if p.Spec.Hostname != "" && p.Spec.Subdomain == svc.Name {
		e.Hostname = ptr.To(p.Spec.Hostname)
	}
	if ready {
		e.Hints = hints(svc, e)
	}
	return e, true
}

// hints returns the zones and nodes that a ready endpoint is meant for, as spec.trafficDistribution requires.
func hints(svc *corev1.Service, e discoveryv1.Endpoint) *discoveryv1.EndpointHints {
	var h discoveryv1.EndpointHints
	wish := ptr.Deref(svc.Spec.TrafficDistribution, "")
	if wish != "" && e.Zone != nil {
		h.ForZones = []discoveryv1.ForZone{{Name: *e.Zone}}
	}
	if wish == corev1.ServiceTrafficDistributionPreferSameNode && e.NodeName != nil {
		h.ForNodes = []discoveryv1.ForNode{{Name: *e.NodeName}}
	}
	if h.ForZones == nil && h.ForNodes == nil {
		return nil
	}
	return &h
}

// endpointPorts resolves the ports of a Service for one pod; a named port that the pod does not have is left out.
func endpointPorts(svc *corev1.Service, p *corev1.Pod) []discoveryv1.EndpointPort {
	var out []discoveryv1.EndpointPort
	for _, sp := range svc.Spec.Ports {
		if n, ok := findPort(p, sp); ok {
			out = append(out, discoveryv1.EndpointPort{
				Name: ptr.To(sp.Name), Protocol: ptr.To(sp.Protocol), Port: ptr.To(n), AppProtocol: sp.AppProtocol,
			})
		}
	}
	return out
}

func findPort(p *corev1.Pod, sp corev1.ServicePort) (int32, bool) {
	if sp.TargetPort.Type == intstr.Int {
		return sp.TargetPort.IntVal, true
	}
	containers := slices.Clone(p.Spec.Containers)
	for _, c := range p.Spec.InitContainers {
		if ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways { // a sidecar
			containers = append(containers, c)
		}
	}
	for _, c := range containers {
		for _, cp := range c.Ports {
			if cp.Name == sp.TargetPort.StrVal && cp.Protocol == sp.Protocol {
				return cp.ContainerPort, true
			}
		}
	}
	return 0, false
}

// reconcileFamily brings the slices of one Service and address type to the wanted endpoints.
func (tx *Tx) reconcileFamily(svc *corev1.Service, t discoveryv1.AddressType, want map[string]*backends,
	existing []*discoveryv1.EndpointSlice) {
	kept := map[string][]*discoveryv1.EndpointSlice{}
	for _, s := range existing {
		k := portsKey(s.Ports)
		c := copyOf(s)
		c.Endpoints = nil
		if b := want[k]; b != nil {
			c.Endpoints = b.takeThoseOf(s.Endpoints)
		}
		kept[k] = append(kept[k], c)
	}
	for _, k := range slices.Sorted(maps.Keys(want)) {
		kept[k] = want[k].fill(kept[k], func() *discoveryv1.EndpointSlice {
			return &discoveryv1.EndpointSlice{AddressType: t, Ports: want[k].ports}
		})
	}
	var put, empty []*discoveryv1.EndpointSlice
	for _, k := range slices.Sorted(maps.Keys(kept)) {
		for _, s := range kept[k] {
			if len(s.Endpoints) > 0 {
				put = append(put, s)
			} else {
				empty = append(empty, s)
			}
		}
	}
	if len(put) == 0 { // a Service always has a slice per family, if only an empty one without ports
		at := slices.IndexFunc(empty, func(s *discoveryv1.EndpointSlice) bool { return len(s.Ports) == 0 })
		if at < 0 {
			put = append(put, &discoveryv1.EndpointSlice{AddressType: t})
		} else {
			put = append(put, empty[at])
			empty = slices.Delete(empty, at, at+1)
		}
	}
	for _, s := range put {
		tx.putSlice(svc, s)
	}
	for _, s := range empty {
		tx.removeRef(ref{KindEndpointSlice, KeyOf(s)})
	}
}

// takeThoseOf moves the wanted endpoints of the pods that are in old out of b, in the order of old.
func (b *backends) takeThoseOf(old []discoveryv1.Endpoint) []discoveryv1.Endpoint {
	wanted := map[types.UID]discoveryv1.Endpoint{}
	for _, e := range b.endpoints {
		wanted[e.TargetRef.UID] = e
	}
	var out []discoveryv1.Endpoint
	for _, e := range old {
		uid := ptr.Deref(e.TargetRef, corev1.ObjectReference{}).UID
		if e, ok := wanted[uid]; ok {
			out = append(out, e)
			delete(wanted, uid)
		}
	}
	b.endpoints = slices.DeleteFunc(b.endpoints, func(e discoveryv1.Endpoint) bool {
		_, left := wanted[e.TargetRef.UID]
		return !left
	})
	return out
}

// fill puts the endpoints that are in no slice yet into the fullest slices that have room, then into new ones.
func (b *backends) fill(into []*discoveryv1.EndpointSlice,
	fresh func() *discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	byRoom := slices.Clone(into)
	slices.SortStableFunc(byRoom, func(a, c *discoveryv1.EndpointSlice) int {
		return cmp.Compare(len(c.Endpoints), len(a.Endpoints))
	})
	for len(b.endpoints) > 0 {
		var s *discoveryv1.EndpointSlice
		if len(byRoom) > 0 {
			s, byRoom = byRoom[0], byRoom[1:]
		} else {
			s = fresh()
			into = append(into, s)
		}
		n := min(len(b.endpoints), max(0, endpointsPerSlice-len(s.Endpoints)))
		s.Endpoints = append(s.Endpoints, b.endpoints[:n]...)
		b.endpoints = b.endpoints[n:]
	}
	return into
}

// putSlice adds the controller's common fields to a slice, and stores it.
func (tx *Tx) putSlice(svc *corev1.Service, s *discoveryv1.EndpointSlice) {
	s.Namespace = svc.Namespace
	s.Labels = sliceLabels(svc)
	s.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(svc,
		corev1.SchemeGroupVersion.WithKind(string(KindService)))}
	for i := 0; s.Name == ""; i++ {
		name := svc.Name + "-" + suffix(fmt.Sprintf("%s %s %d", KeyOf(svc), s.AddressType, i))
		if _, taken := tx.s.slices.objects[Key{svc.Namespace, name}]; !taken {
			s.GenerateName, s.Name = svc.Name+"-", name
		}
	}
	tx.put(ResourceOf(s), s)
}

// sliceLabels returns the labels of the Service and those that name the slice's Service and controller.
func sliceLabels(svc *corev1.Service) map[string]string {
	labels := maps.Clone(svc.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[discoveryv1.LabelServiceName] = svc.Name
	labels[discoveryv1.LabelManagedBy] = sliceManager
	delete(labels, corev1.IsHeadlessService)
	if isHeadless(svc) {
		labels[corev1.IsHeadlessService] = ""
	}
	return labels
}
