// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/viplab/viplab/lab"
)

// TestAnySequence drives a store with random changes, many of them invalid, and checks after each that nobody shares an
// address or port, that slices say what the selectors say, that watchers could have followed, and that a change that
// failed left no trace.
func TestAnySequence(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		stack := rapid.SampledFrom([]lab.Stack{lab.IPv4, lab.IPv6, lab.Dual}).Draw(rt, "stack")
		s := newTestStore(t, Config{Stack: stack, NodePorts: PortRange{30000, 30011}, ServiceCIDRs: smallRanges(stack)},
			"n1", "n2")
		rt.Repeat(map[string]func(*rapid.T){
			"service": func(rt *rapid.T) { attempt(rt, s.Apply(randomService(rt))) },
			"two":     func(rt *rapid.T) { attempt(rt, s.Apply(randomService(rt), randomService(rt))) },
			"retype":  func(rt *rapid.T) { attempt(rt, retype(rt, s)) },
			"pod":     func(rt *rapid.T) { attempt(rt, s.Apply(randomPod(rt))) },
			"status":  func(rt *rapid.T) { attempt(rt, reportRandomly(rt, s)) },
			"terminate": func(rt *rapid.T) {
				attempt(rt, s.Terminate("default", name("p").Draw(rt, "pod"), rapid.Bool().Draw(rt, "serving")))
			},
			"scale": func(rt *rapid.T) {
				attempt(rt, s.Apply(newDeployment(name("s").Draw(rt, "deployment"), rapid.Int32Range(-1, 3).Draw(rt, "replicas"))))
			},
			"node": func(rt *rapid.T) {
				attempt(rt, s.Apply(newNode(rapid.SampledFrom([]string{"n1", "n2", "n3"}).Draw(rt, "node"),
					rapid.SampledFrom([]string{"", "a", "b"}).Draw(rt, "zone"))))
			},
			"delete": func(rt *rapid.T) {
				kind := rapid.SampledFrom([]Kind{KindService, KindPod, KindDeployment, KindNode, KindEndpointSlice}).Draw(rt,
					"kind")
				if k, ok := anyOf(rt, s.tables[kind].objectsInOrder()); ok {
					attempt(rt, s.Delete(kind, k.Namespace, k.Name))
				}
			},
			"": func(rt *rapid.T) { checkInvariants(rt, s) },
		})
	})
}

func smallRanges(stack lab.Stack) []netip.Prefix {
	var out []netip.Prefix
	for _, f := range stack.Families() {
		out = append(out, map[lab.Family]netip.Prefix{
			lab.V4: netip.MustParsePrefix("10.96.0.0/28"), lab.V6: netip.MustParsePrefix("fd00:10:96::/124"),
		}[f])
	}
	return out
}

func name(prefix string) *rapid.Generator[string] {
	return rapid.Custom(func(rt *rapid.T) string { return fmt.Sprint(prefix, rapid.IntRange(0, 5).Draw(rt, "n")) })
}

// attempt notes a refusal, for the reader of a failure. That it left no trace is for checkInvariants to find.
func attempt(rt *rapid.T, err error) {
	if err != nil {
		rt.Logf("refused: %v", err)
	}
}

// anyOf picks one of some objects by name, false if there is none.
func anyOf[T Object](rt *rapid.T, objs []T) (Key, bool) {
	if len(objs) == 0 {
		return Key{}, false
	}
	var keys []Key
	for _, o := range objs {
		keys = append(keys, KeyOf(o))
	}
	return rapid.SampledFrom(keys).Draw(rt, "object"), true
}

func randomService(rt *rapid.T) *corev1.Service {
	svc := newService(name("s").Draw(rt, "service"))
	spec := &svc.Spec
	spec.Type = rapid.SampledFrom([]corev1.ServiceType{"", "ClusterIP", "NodePort", "NodePort", "LoadBalancer",
		"ExternalName"}).Draw(rt, "type")
	if spec.Type == "ExternalName" {
		spec.ExternalName = "example.com"
	}
	if spec.Type == "LoadBalancer" && rapid.Bool().Draw(rt, "local") {
		spec.ExternalTrafficPolicy = "Local"
	}
	spec.ClusterIP = rapid.SampledFrom([]string{"", "", "None", "10.96.0.3", "10.96.0.4", "10.99.0.1", "fd00:10:96::3",
		"fd00:10:96::4"}).Draw(rt, "clusterIP")
	if p := rapid.SampledFrom([]corev1.IPFamilyPolicy{"", "SingleStack", "PreferDualStack", "RequireDualStack"}).Draw(rt,
		"policy"); p != "" {
		spec.IPFamilyPolicy = &p
	}
	spec.Selector = rapid.SampledFrom([]map[string]string{nil, {"app": "s1"}, {"app": "s2"},
		{"app": "s1", "tier": "x"}}).Draw(rt, "selector")
	spec.PublishNotReadyAddresses = rapid.Bool().Draw(rt, "publish")
	if d := rapid.SampledFrom([]string{"", "PreferClose", "PreferSameNode"}).Draw(rt, "distribution"); d != "" {
		spec.TrafficDistribution = &d
	}
	spec.Ports = nil
	for i := range rapid.IntRange(1, 2).Draw(rt, "ports") {
		spec.Ports = append(spec.Ports, corev1.ServicePort{
			Name:     fmt.Sprint("port-", i),
			Port:     rapid.Int32Range(79, 81).Draw(rt, "port"),
			Protocol: rapid.SampledFrom([]corev1.Protocol{"TCP", "UDP"}).Draw(rt, "protocol"),
			NodePort: rapid.SampledFrom([]int32{0, 0, 0, 30000, 30001, 40000}).Draw(rt, "nodePort"),
		})
		if rapid.Bool().Draw(rt, "named") {
			spec.Ports[i].TargetPort = intstr.FromString("http")
		}
	}
	return svc
}

func retype(rt *rapid.T, s *Store) error {
	return Update(s, "default", name("s").Draw(rt, "service"), func(svc *corev1.Service) {
		svc.Spec.Type = rapid.SampledFrom([]corev1.ServiceType{"ClusterIP", "NodePort", "LoadBalancer",
			"ExternalName"}).Draw(rt, "type")
		svc.Spec.ExternalName = "example.com"
		if svc.Spec.IPFamilyPolicy != nil {
			*svc.Spec.IPFamilyPolicy = rapid.SampledFrom([]corev1.IPFamilyPolicy{"SingleStack", "PreferDualStack"}).Draw(rt,
				"policy")
		}
	})
}

func randomPod(rt *rapid.T) *corev1.Pod {
	p := newPod(name("p").Draw(rt, "pod"), rapid.SampledFrom([]string{"", "n1", "n2"}).Draw(rt, "node"), map[string]string{
		"app": name("s").Draw(rt, "app"), "tier": rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "tier"),
	})
	p.Spec.Containers[0].Ports[0].ContainerPort = rapid.Int32Range(8080, 8081).Draw(rt, "containerPort")
	return p
}

func reportRandomly(rt *rapid.T, s *Store) error {
	pod, ok := anyOf(rt, s.Snapshot().Pods)
	if !ok {
		return nil
	}
	ips := rapid.SampledFrom([][]netip.Addr{
		nil, {netip.MustParseAddr("10.244.1.1")}, {netip.MustParseAddr("10.244.1.2"),
			netip.MustParseAddr("fd00:10:244:1::2")},
	}).Draw(rt, "ips")
	ready, over := rapid.Bool().Draw(rt, "ready"), rapid.IntRange(0, 5).Draw(rt, "over") == 0
	return UpdateStatus(s, pod.Namespace, pod.Name, func(p *corev1.Pod) {
		ReportRunning(ready, ips...)(p)
		if over {
			p.Status.Phase = corev1.PodFailed
		}
	})
}

func checkInvariants(rt *rapid.T, s *Store) {
	snapshot := s.Snapshot()
	checkNothingIsShared(rt, s, snapshot)
	for _, svc := range snapshot.Services {
		checkSlices(rt, svc, snapshot)
	}
	checkIndex(rt, s)
	checkReplay(rt, s, snapshot)
}

func checkNothingIsShared(rt *rapid.T, s *Store, snapshot *Snapshot) {
	owners := map[string]string{}
	claim := func(what, who string) {
		if other, taken := owners[what]; taken && other != who {
			rt.Fatalf("%s is held by %s and %s", what, other, who)
		}
		owners[what] = who
	}
	for _, svc := range snapshot.Services {
		for i, ip := range svc.Spec.ClusterIPs {
			if ip == "None" {
				continue
			}
			claim(ip, svc.Name)
			a := netip.MustParseAddr(ip)
			if r := s.ranges[familyOf(a)]; !r.Contains(a) || familyOf(a) != svc.Spec.IPFamilies[i] {
				rt.Fatalf("%s of %s is not in %s", ip, svc.Name, r)
			}
		}
		for _, p := range nodePortsOf(svc) {
			claim(fmt.Sprint("port ", p), svc.Name)
			if !s.nodeRange.Contains(p) {
				rt.Fatalf("port %d of %s", p, svc.Name)
			}
		}
		perProtocol := map[string]bool{}
		for _, p := range svc.Spec.Ports {
			k := fmt.Sprint(p.NodePort, p.Protocol)
			if p.NodePort != 0 && (perProtocol[k] || p.NodePort == svc.Spec.HealthCheckNodePort) {
				rt.Fatalf("%s has nodePort %s twice", svc.Name, k)
			}
			perProtocol[k] = true
		}
		if hasIP, wants := len(svc.Spec.ClusterIPs) > 0, svc.Spec.Type != "ExternalName"; hasIP != wants {
			rt.Fatalf("%s of type %s has ClusterIPs %q", svc.Name, svc.Spec.Type, svc.Spec.ClusterIPs)
		}
		if svc.Spec.Type == "NodePort" && slices.ContainsFunc(svc.Spec.Ports,
			func(p corev1.ServicePort) bool { return p.NodePort == 0 }) {
			rt.Fatalf("%s has a port without nodePort", svc.Name)
		}
	}
}

// checkSlices computes from scratch what the slices of a Service have to say, as a set of lines.
func checkSlices(rt *rapid.T, svc *corev1.Service, snapshot *Snapshot) {
	got, want := map[string]int{}, map[string]int{}
	types := map[string]int{}
	for _, slice := range snapshot.EndpointSlices {
		if slice.Labels[discoveryv1.LabelServiceName] != svc.Name {
			continue
		}
		types[string(slice.AddressType)]++
		for _, e := range slice.Endpoints {
			line := fmt.Sprint(slice.AddressType, e.Addresses, ptr.Deref(e.NodeName, ""), ptr.Deref(e.Zone, ""),
				*e.Conditions.Ready, *e.Conditions.Serving, *e.Conditions.Terminating)
			for _, p := range slice.Ports {
				line += fmt.Sprint(" ", *p.Name, *p.Port, *p.Protocol)
			}
			if e.Hints != nil {
				line += fmt.Sprint(" for ", e.Hints.ForZones, e.Hints.ForNodes)
			}
			got[line]++
		}
	}
	if svc.Spec.Type == "ExternalName" {
		if len(types) > 0 {
			rt.Fatalf("ExternalName %s has slices %v", svc.Name, types)
		}
		return
	}
	if svc.Spec.Selector == nil {
		return
	}
	for _, f := range svc.Spec.IPFamilies {
		if types[string(f)] == 0 {
			rt.Fatalf("%s has no %s slice", svc.Name, f)
		}
		for _, p := range snapshot.Pods {
			if line := naiveEndpoint(svc, f, p, snapshot); line != "" {
				want[line]++
			}
		}
	}
	if !maps.Equal(got, want) {
		rt.Fatalf("slices of %s say\n%v\nwant\n%v", svc.Name, got, want)
	}
}

func naiveEndpoint(svc *corev1.Service, f corev1.IPFamily, p *corev1.Pod, snapshot *Snapshot) string {
	for k, v := range svc.Spec.Selector {
		if p.Labels[k] != v {
			return ""
		}
	}
	ip := ""
	for _, a := range p.Status.PodIPs {
		if netip.MustParseAddr(a.IP).Is4() == (f == "IPv4") {
			ip = a.IP
		}
	}
	if ip == "" || p.Status.Phase == "Failed" || p.Status.Phase == "Succeeded" {
		return ""
	}
	zone, placed := "", false
	for _, n := range snapshot.Nodes {
		if n.Name == p.Spec.NodeName {
			placed, zone = true, n.Labels["topology.kubernetes.io/zone"]
		}
	}
	if !placed && !svc.Spec.PublishNotReadyAddresses {
		return ""
	}
	serving := false
	for _, c := range p.Status.Conditions {
		serving = serving || c.Type == "Ready" && c.Status == "True"
	}
	terminating := p.DeletionTimestamp != nil
	ready := serving && !terminating || svc.Spec.PublishNotReadyAddresses
	line := fmt.Sprint(f, []string{ip}, p.Spec.NodeName, zone, ready, serving, terminating)
	for _, sp := range svc.Spec.Ports {
		switch {
		case sp.TargetPort.Type == intstr.Int:
			line += fmt.Sprint(" ", sp.Name, sp.Port, sp.Protocol)
		case sp.Protocol == "TCP":
			line += fmt.Sprint(" ", sp.Name, p.Spec.Containers[0].Ports[0].ContainerPort, sp.Protocol)
		}
	}
	var zones []discoveryv1.ForZone
	var nodes []discoveryv1.ForNode
	if svc.Spec.TrafficDistribution != nil && zone != "" {
		zones = []discoveryv1.ForZone{{Name: zone}}
	}
	if ptr.Deref(svc.Spec.TrafficDistribution, "") == "PreferSameNode" && placed {
		nodes = []discoveryv1.ForNode{{Name: p.Spec.NodeName}}
	}
	if ready && (zones != nil || nodes != nil) {
		line += fmt.Sprint(" for ", zones, nodes)
	}
	return line
}

// checkIndex builds the index anew from the tables.
func checkIndex(rt *rapid.T, s *Store) {
	fresh := newIndex()
	for k, t := range s.tables {
		for _, o := range t.objectsInOrder() {
			fresh.replace(k, nil, o)
		}
	}
	if !reflect.DeepEqual(fresh, s.index) {
		rt.Fatalf("index\n%+v\nwant\n%+v", s.index, fresh)
	}
}

// checkReplay rebuilds the state from the events alone.
func checkReplay(rt *rapid.T, s *Store, snapshot *Snapshot) {
	events, err := s.EventsSince(0)
	if err != nil {
		rt.Fatal(err)
	}
	state := map[ref]Object{}
	for i, e := range events {
		r := ref{e.Kind, KeyOf(e.Object)}
		if e.Revision != uint64(i+1) || state[r] != e.Old {
			rt.Fatalf("event %d: revision %d, old object %v, want %v", i, e.Revision, e.Old, state[r])
		}
		if state[r] = e.Object; e.Type == watch.Deleted {
			delete(state, r)
		}
	}
	if snapshot.Revision != uint64(len(events)) {
		rt.Fatalf("revision %d after %d events", snapshot.Revision, len(events))
	}
	n := 0
	for k, t := range s.tables {
		for _, o := range t.objectsInOrder() {
			if n++; state[ref{k, KeyOf(o)}] != o {
				rt.Fatalf("%s %s is not what the events say", k, KeyOf(o))
			}
		}
		if !slices.IsSortedFunc(t.objectsInOrder(), func(a, b Object) int { return compareKeys(KeyOf(a), KeyOf(b)) }) {
			rt.Fatalf("%s is not in order", k)
		}
	}
	if n != len(state) {
		rt.Fatalf("%d objects, the events leave %d", n, len(state))
	}
}
