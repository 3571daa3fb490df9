// SPDX-License-Identifier: Apache-2.0

package proxiertest

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// World is a dual-stack lab of two nodes with a proxier on each, and a server on port 8080 in every pod: a1 and b1 on
// n1, a2 on n2.
type World struct {
	nodes
	Proxier spec.Proxier // the one that was started last
}

// NewWorld builds a world, or skips the test where the proxier cannot run. It ends with the test.
func NewWorld(t *testing.T, p spec.Proxier, pods lab.PodNetwork) *World {
	t.Helper()
	w := EmptyWorld(t, pods)
	w.Start(t, p)
	return w
}

// EmptyWorld builds a world without a proxier. It ends with the test.
func EmptyWorld(t *testing.T, pods lab.PodNetwork) *World {
	t.Helper()
	w := &World{nodes: build(t, lab.Topology{
		Nodes: []lab.NodeSpec{
			{Name: "n1", Pods: []lab.PodSpec{{Name: "a1"}, {Name: "b1"}}},
			{Name: "n2", Pods: []lab.PodSpec{{Name: "a2"}}},
		},
		Stack:      lab.Dual,
		PodNetwork: pods,
	}, traffic.Port{Proto: "tcp", Number: 8080}, traffic.Port{Proto: "udp", Number: 8080})}
	t.Cleanup(func() { w.Stop(t) })
	return w
}

// Start starts a proxier on every node, and gives it the state.
func (w *World) Start(t *testing.T, p spec.Proxier) {
	t.Helper()
	w.Proxier = p
	for _, place := range w.Places {
		in := Start(t, p, place)
		w.Instances = append(w.Instances, in)
		Apply(t, in, w.State)
	}
}

// Stop stops the proxier.
func (w *World) Stop(t *testing.T) {
	t.Helper()
	for _, in := range w.Instances {
		if err := in.Stop(context.WithoutCancel(t.Context())); err != nil { // which ends before the cleanup
			t.Error(err)
		}
	}
	w.Instances = nil
}

// Restart kills the i-th node's instance, and starts a new one.
func (w *World) Restart(t *testing.T, i int) {
	t.Helper()
	if err := w.Instances[i].Kill(t.Context()); err != nil { // which closes its sockets
		t.Fatal(err)
	}
	w.Instances[i] = Start(t, w.Proxier, w.Places[i])
	Apply(t, w.Instances[i], w.State)
}

// Apply adds or changes a Service with these pods behind it.
func (w *World) Apply(t *testing.T, svc *corev1.Service, pods ...string) {
	t.Helper()
	next := *w.State
	next.Services = append(slices.DeleteFunc(slices.Clone(next.Services),
		func(s *corev1.Service) bool { return s.Name == svc.Name }), svc)
	next.EndpointSlices = slices.DeleteFunc(slices.Clone(next.EndpointSlices),
		func(s *discoveryv1.EndpointSlice) bool { return s.Labels[discoveryv1.LabelServiceName] == svc.Name })
	for _, f := range w.Stack().Families() {
		next.EndpointSlices = append(next.EndpointSlices, w.slice(svc, f, pods))
	}
	slices.SortFunc(next.Services, func(a, b *corev1.Service) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(next.EndpointSlices,
		func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	w.apply(t, &next)
}

func (w *World) slice(svc *corev1.Service, f lab.Family, pods []string) *discoveryv1.EndpointSlice {
	sl := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: svc.Name + "-" + f.String(), Labels: map[string]string{discoveryv1.LabelServiceName: svc.Name},
		},
		AddressType: discoveryv1.AddressType("IP" + f.String()),
	}
	for _, p := range svc.Spec.Ports {
		sl.Ports = append(sl.Ports,
			discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: new(int32(8080))})
	}
	for _, p := range pods {
		sl.Endpoints = append(sl.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{w.Pod(p).Addr(f).String()}, NodeName: new(w.Pod(p).Node().Name()),
		})
	}
	return sl
}

// Service makes a dual-stack Service with TCP and UDP on port 80, at VIP(f, number).
func Service(name string, number int, change ...func(*corev1.ServiceSpec)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		Type:       corev1.ServiceTypeClusterIP,
		ClusterIPs: []string{VIP(lab.V4, number).Addr().String(), VIP(lab.V6, number).Addr().String()},
		Ports: []corev1.ServicePort{
			{Name: "tcp", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: int32(30000 + number)},
			{Name: "udp", Protocol: corev1.ProtocolUDP, Port: 80, NodePort: int32(30000 + number)},
		},
	}}
	s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	for _, c := range change {
		c(&s.Spec)
	}
	return s
}

// VIP returns the ClusterIP and port of a Service with this number.
func VIP(f lab.Family, number int) netip.AddrPort {
	pattern := map[lab.Family]string{lab.V4: "10.96.0.%d:80", lab.V6: "[fd00:10:96::%d]:80"}[f]
	return netip.MustParseAddrPort(fmt.Sprintf(pattern, number))
}

// NodePort returns the NodePort of a Service with this number on a node.
func (w *World) NodePort(node string, f lab.Family, number int) netip.AddrPort {
	return netip.AddrPortFrom(w.Node(node).Addr(f), uint16(30000+number))
}

// AsNodePort gives a Service NodePorts.
func AsNodePort(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort }

// AsLocal gives a Service NodePorts under external policy Local.
func AsLocal(s *corev1.ServiceSpec) {
	AsNodePort(s)
	s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

// AsSticky gives a Service session affinity.
func AsSticky(s *corev1.ServiceSpec) { s.SessionAffinity = corev1.ServiceAffinityClientIP }
