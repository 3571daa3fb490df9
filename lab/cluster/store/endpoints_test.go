// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/viplab/viplab/lab"
)

func checkEndpoints(t *testing.T, s *discoveryv1.EndpointSlice, want []discoveryv1.Endpoint) {
	t.Helper()
	checkSame(t, "endpoints of "+s.Name, s.Endpoints, want)
}

// checkSame compares two values as YAML, which is also how people read them.
func checkSame(t *testing.T, what string, got, want any) {
	t.Helper()
	g, err := yaml.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	w, err := yaml.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if string(g) != string(w) {
		t.Errorf("%s:\n%s\nwant:\n%s", what, g, w)
	}
}

// slicesOf lists the slices of a Service of one address type.
func slicesOf(s *Store, service string, t discoveryv1.AddressType) []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	for _, e := range s.Snapshot().EndpointSlices {
		if e.Labels[discoveryv1.LabelServiceName] == service && e.AddressType == t {
			out = append(out, e)
		}
	}
	return out
}

// only returns the one slice a Service has of an address type.
func only(t *testing.T, s *Store, service string, at discoveryv1.AddressType) *discoveryv1.EndpointSlice {
	t.Helper()
	list := slicesOf(s, service, at)
	if len(list) != 1 {
		t.Fatalf("%d %s slices of %s, want 1", len(list), at, service)
	}
	return list[0]
}

func TestSliceWordForWord(t *testing.T) {
	s := newTestStore(t, Config{})
	apply(t, s, newNode("n1", "zone-a"), newPod("web-0", "n1", app("web")), newService("web", func(svc *corev1.Service) {
		svc.Labels = map[string]string{"team": "shop"}
		svc.Spec.Ports[0].Name = "http"
		svc.Spec.Ports[0].AppProtocol = ptr.To("http")
	}))
	report(t, s, "web-0", true, "10.244.1.2")
	got := only(t, s, "web", "IPv4")
	pod, svc := get[*corev1.Pod](t, s, "web-0"), get[*corev1.Service](t, s, "web")
	checkSame(t, "slice", got, &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: got.Name, GenerateName: "web-", UID: got.UID, ResourceVersion: got.ResourceVersion,
			Generation: 1, CreationTimestamp: metav1.NewTime(epoch),
			Labels: map[string]string{
				"team": "shop", "kubernetes.io/service-name": "web",
				"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Service", Name: "web", UID: svc.UID, Controller: ptr.To(true),
				BlockOwnerDeletion: ptr.To(true),
			}},
		},
		AddressType: "IPv4",
		Ports: []discoveryv1.EndpointPort{{
			Name: ptr.To("http"), Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolTCP), AppProtocol: ptr.To("http"),
		}},
		Endpoints: []discoveryv1.Endpoint{{
			Addresses:  []string{"10.244.1.2"},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
			NodeName:   ptr.To("n1"), Zone: ptr.To("zone-a"),
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web-0", UID: pod.UID},
		}},
	})
}

func TestEndpointConditions(t *testing.T) {
	tests := []struct {
		name                                        string
		ready, publish, terminate, serveOnTerminate bool
		wantReady, wantServing, wantTerminating     bool
	}{
		{"ready", true, false, false, false, true, true, false},
		{"not ready", false, false, false, false, false, false, false},
		{"not ready, published", false, true, false, false, true, false, false},
		{"terminating and serving", true, false, true, true, false, true, true},
		{"terminating and not serving", true, false, true, false, false, false, true},
		{"terminating, published", true, true, true, false, true, false, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newTestStore(t, Config{}, "n1")
			apply(t, s, newPod("p", "n1", app("web")), newService("web",
				func(svc *corev1.Service) { svc.Spec.PublishNotReadyAddresses = test.publish }))
			report(t, s, "p", test.ready, "10.244.1.2")
			if test.terminate {
				if err := s.Terminate("default", "p", test.serveOnTerminate); err != nil {
					t.Fatal(err)
				}
			}
			checkEndpoints(t, only(t, s, "web", "IPv4"), []discoveryv1.Endpoint{
				wantEndpoint(s, "p", "n1", "10.244.1.2", test.wantReady, test.wantServing, test.wantTerminating),
			})
			if err := s.Delete("Pod", "default", "p"); err != nil {
				t.Fatal(err)
			}
			if empty := only(t, s, "web", "IPv4"); len(empty.Endpoints)+len(empty.Ports) != 0 {
				t.Errorf("after the pod is gone: %+v", empty)
			}
		})
	}
}

func TestWhoIsAnEndpoint(t *testing.T) {
	s := newTestStore(t, Config{Stack: lab.Dual}, "n1")
	for name, status := range map[string]corev1.PodStatus{
		"both":      {Phase: "Running", PodIPs: []corev1.PodIP{{IP: "10.244.1.2"}, {IP: "fd00:10:244:1::2"}}},
		"v6-only":   {Phase: "Running", PodIPs: []corev1.PodIP{{IP: "fd00:10:244:1::3"}}},
		"one-field": {Phase: "Running", PodIP: "10.244.1.4"},
		"no-ip":     {Phase: "Pending"},
		"succeeded": {Phase: "Succeeded", PodIP: "10.244.1.5"},
		"failed":    {Phase: "Failed", PodIP: "10.244.1.6"},
	} {
		apply(t, s, newPod(name, "n1", app("web")))
		if err := UpdateStatus(s, "default", name, func(p *corev1.Pod) { p.Status = status }); err != nil {
			t.Fatal(err)
		}
	}
	apply(t, s, newPod("other", "n1", app("db")))
	report(t, s, "other", true, "10.244.1.9")
	apply(t, s, newService("web", func(svc *corev1.Service) { svc.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyPreferDualStack) }))

	checkSame(t, "IPv4 addresses", addresses(only(t, s, "web", "IPv4")), []string{"10.244.1.2", "10.244.1.4"})
	checkSame(t, "IPv6 addresses", addresses(only(t, s, "web", "IPv6")), []string{"fd00:10:244:1::2", "fd00:10:244:1::3"})
}

func addresses(s *discoveryv1.EndpointSlice) []string {
	var out []string
	for _, e := range s.Endpoints {
		out = append(out, e.Addresses...)
	}
	return out
}

func TestSelectors(t *testing.T) {
	s := newTestStore(t, Config{}, "n1")
	for i, labels := range []map[string]string{
		{"app": "web", "tier": "front"}, {"app": "web", "tier": "back"}, {"app": "db", "tier": "front"}, {"app": "web"},
		{"tier": "front"}, nil,
	} {
		name := fmt.Sprint("p", i)
		apply(t, s, newPod(name, "n1", labels))
		report(t, s, name, true, fmt.Sprint("10.244.1.", i))
	}
	for want, selector := range map[string]map[string]string{
		"[10.244.1.0]": {"app": "web", "tier": "front"}, "[10.244.1.0 10.244.1.1 10.244.1.3]": {"app": "web"},
		"[]": {"app": "web", "x": "y"},
	} {
		apply(t, s, newService("web", func(svc *corev1.Service) { svc.Spec.Selector = selector }))
		if got := fmt.Sprint(addresses(only(t, s, "web", "IPv4"))); got != want {
			t.Errorf("%v selects %s, want %s", selector, got, want)
		}
	}
	// Labels come and go.
	apply(t, s, newService("web"), newPod("p4", "n1", app("web")), newPod("p0", "n1", nil))
	if got := fmt.Sprint(addresses(only(t, s, "web", "IPv4"))); got != "[10.244.1.1 10.244.1.3 10.244.1.4]" {
		t.Errorf("after relabelling: %s", got)
	}
}

func TestNamedPortsResolvePerPod(t *testing.T) {
	s := newTestStore(t, Config{}, "n1")
	old, young, none := newPod("old", "n1", app("web")), newPod("young", "n1", app("web")),
		newPod("none", "n1", app("web"))
	young.Spec.Containers[0].Ports[0].ContainerPort = 9090
	none.Spec.Containers[0].Ports = nil
	none.Spec.InitContainers = []corev1.Container{{Name: "setup", Image: "i:1",
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 1}}}}
	side := newPod("side", "n1", app("web"))
	side.Spec.Containers[0].Ports[0].Protocol = "UDP" // of the right name, but the Service wants TCP
	side.Spec.InitContainers = []corev1.Container{{
		Name: "proxy", Image: "i:1", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 7070}},
	}}
	apply(t, s, old, young, none, side, newService("web", func(svc *corev1.Service) {
		svc.Spec.Ports = []corev1.ServicePort{{Name: "web", Port: 80, TargetPort: intstr.FromString("http")},
			{Name: "adm", Port: 81}}
	}))
	for i, p := range []string{"old", "young", "none", "side"} {
		report(t, s, p, true, fmt.Sprintf("10.244.1.%d", i+1))
	}
	got := map[string]string{}
	for _, slice := range slicesOf(s, "web", "IPv4") {
		var ports string
		for _, p := range slice.Ports {
			ports += fmt.Sprintf("%s=%d ", *p.Name, *p.Port)
		}
		got[ports] = fmt.Sprint(addresses(slice))
	}
	checkSame(t, "slices", got, map[string]string{
		"web=8080 adm=81 ": "[10.244.1.1]", "web=9090 adm=81 ": "[10.244.1.2]", "adm=81 ": "[10.244.1.3]",
		"web=7070 adm=81 ": "[10.244.1.4]",
	})
}

func TestHeadlessSlices(t *testing.T) {
	s := newTestStore(t, Config{}, "n1")
	p := newPod("db-0", "n1", app("db"))
	p.Spec.Hostname, p.Spec.Subdomain = "db-0", "db"
	apply(t, s, p, newService("db", func(svc *corev1.Service) { svc.Spec.ClusterIP, svc.Spec.Ports = "None", nil }))
	report(t, s, "db-0", true, "10.244.1.2")
	slice := only(t, s, "db", "IPv4")
	if _, ok := slice.Labels["service.kubernetes.io/headless"]; !ok || len(slice.Ports) != 0 {
		t.Errorf("labels %v, ports %v", slice.Labels, slice.Ports)
	}
	if h := slice.Endpoints[0].Hostname; h == nil || *h != "db-0" {
		t.Errorf("hostname %v", h)
	}
	if svc := get[*corev1.Service](t, s, "db").Spec; svc.ClusterIP != "None" || len(svc.ClusterIPs) != 1 ||
		svc.ClusterIPs[0] != "None" {
		t.Errorf("clusterIP %q, clusterIPs %q", svc.ClusterIP, svc.ClusterIPs)
	}
}

func TestHints(t *testing.T) {
	zoneA, nodeA := []discoveryv1.ForZone{{Name: "a"}}, []discoveryv1.ForNode{{Name: "n1"}}
	for distribution, want := range map[string]*discoveryv1.EndpointHints{
		"":               nil,
		"PreferClose":    {ForZones: zoneA},
		"PreferSameZone": {ForZones: zoneA},
		"PreferSameNode": {ForZones: zoneA, ForNodes: nodeA},
	} {
		t.Run(distribution, func(t *testing.T) {
			s := newTestStore(t, Config{})
			apply(t, s, newNode("n1", "a"), newPod("p1", "n1", app("web")), newPod("p2", "n1", app("web")),
				newService("web", func(svc *corev1.Service) {
					if distribution != "" {
						svc.Spec.TrafficDistribution = &distribution
					}
				}))
			report(t, s, "p1", true, "10.244.1.1")
			report(t, s, "p2", false, "10.244.1.2")
			e := only(t, s, "web", "IPv4").Endpoints
			checkSame(t, "hints", e[0].Hints, want)
			if e[1].Hints != nil {
				t.Errorf("hints of an endpoint that is not ready: %v", e[1].Hints)
			}
		})
	}
}

func TestZoneFollowsTheNode(t *testing.T) {
	s := newTestStore(t, Config{})
	apply(t, s, newNode("n1", "a"), newPod("p", "n1", app("web")), newService("web"))
	report(t, s, "p", true, "10.244.1.1")
	apply(t, s, newNode("n1", "b"))
	if z := only(t, s, "web", "IPv4").Endpoints[0].Zone; z == nil || *z != "b" {
		t.Errorf("zone %v, want b", z)
	}
}

func TestHandWrittenSlices(t *testing.T) {
	s := newTestStore(t, Config{}, "n1")
	manual := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "api-1", Labels: map[string]string{discoveryv1.LabelServiceName: "api"}},
		AddressType: "IPv4",
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"192.168.7.201"}}},
		Ports:       []discoveryv1.EndpointPort{{Port: ptr.To[int32](6443)}},
	}
	apply(t, s, manual, newService("api", func(svc *corev1.Service) { svc.Spec.Selector = nil }))
	got := only(t, s, "api", "IPv4")
	if *got.Ports[0].Name != "" || *got.Ports[0].Protocol != "TCP" {
		t.Errorf("port defaults: %+v", got.Ports[0])
	}
	// With a selector the controller adds its own and leaves the other alone.
	apply(t, s, newService("api"), newPod("p", "n1", app("api")))
	report(t, s, "p", true, "10.244.1.1")
	if n := len(slicesOf(s, "api", "IPv4")); n != 2 {
		t.Errorf("%d slices, want the hand-written one and another", n)
	}
	// Without it again, what is there stays; with the Service, only the controller's slice goes.
	apply(t, s, newService("api", func(svc *corev1.Service) { svc.Spec.Selector = nil }))
	if n := len(slicesOf(s, "api", "IPv4")); n != 2 {
		t.Errorf("%d slices, want 2", n)
	}
	if err := s.Delete("Service", "default", "api"); err != nil {
		t.Fatal(err)
	}
	if left := only(t, s, "api", "IPv4"); left.Name != "api-1" {
		t.Errorf("%s is left, want api-1", left.Name)
	}
}

func TestManySlices(t *testing.T) {
	s := newTestStore(t, Config{}, "n1")
	apply(t, s, newService("web"))
	err := s.Do(func(tx *Tx) error {
		for i := range 250 {
			if err := tx.Apply(newPod(fmt.Sprintf("p%03d", i), "n1", app("web"))); err != nil {
				return err
			}
			if err := UpdateStatus(tx, "default", fmt.Sprintf("p%03d", i), func(p *corev1.Pod) {
				p.Status = corev1.PodStatus{Phase: "Running", PodIP: fmt.Sprintf("10.244.1.%d", i)}
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sizes := func() map[string]int {
		out := map[string]int{}
		for _, slice := range slicesOf(s, "web", "IPv4") {
			out[slice.Name] = len(slice.Endpoints)
		}
		return out
	}
	before := sizes()
	if n := before; len(n) != 3 {
		t.Fatalf("slices of sizes %v, want 100, 100 and 50", n)
	}
	// One pod less is one smaller slice; one more goes into the fullest that has room.
	revision := s.Snapshot().Revision
	if err := s.Delete("Pod", "default", "p007"); err != nil {
		t.Fatal(err)
	}
	events, err := s.EventsSince(revision)
	if err != nil || len(events) != 2 {
		t.Errorf("%d events and error %v, want the pod and one slice", len(events), err)
	}
	apply(t, s, newPod("p300", "n1", app("web")))
	report(t, s, "p300", true, "10.244.2.1")
	checkSame(t, "sizes", sizes(), before)
}

// A pod on no node is not an endpoint, unless the Service wants its pods as they come.
func TestPodWithoutANode(t *testing.T) {
	s := newTestStore(t, Config{})
	apply(t, s, newPod("p", "", app("web")), newService("web"), newService("eager", func(svc *corev1.Service) {
		svc.Spec.Selector, svc.Spec.PublishNotReadyAddresses = app("web"), true
	}))
	report(t, s, "p", true, "10.244.1.1")
	if n := len(only(t, s, "web", "IPv4").Endpoints); n != 0 {
		t.Errorf("%d endpoints of web, want none", n)
	}
	e := only(t, s, "eager", "IPv4").Endpoints
	if len(e) != 1 || e[0].NodeName != nil {
		t.Errorf("endpoints of eager: %+v", e)
	}
}

// The label that makes proxiers ignore a slice comes from the Service being headless, not from a label of the Service.
func TestHeadlessLabelIsNotCopied(t *testing.T) {
	s := newTestStore(t, Config{})
	apply(t, s, newService("web", func(svc *corev1.Service) {
		svc.Labels = map[string]string{corev1.IsHeadlessService: "", "service.kubernetes.io/service-proxy-name": "other"}
	}))
	labels := only(t, s, "web", "IPv4").Labels
	if _, ok := labels[corev1.IsHeadlessService]; ok || labels["service.kubernetes.io/service-proxy-name"] != "other" {
		t.Errorf("labels %v", labels)
	}
}
