// SPDX-License-Identifier: Apache-2.0

package proxiertest

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/manifest"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// PolicyWorld is a lab of two nodes with an enforcer on each: the pods x/a, x/b and y/a are on n1, x/c and y/b on n2.
// Each serves TCP and UDP on the ports 80 and 81. A pod has its name as the label pod, and a namespace has its own as
// ns.
type PolicyWorld struct{ nodes }

// PolicyPorts are the ports that pods serve.
var PolicyPorts = []traffic.Port{{Proto: "tcp", Number: 80}, {Proto: "udp", Number: 80}, {Proto: "tcp", Number: 81},
	{Proto: "udp", Number: 81}}

// NewPolicyWorld builds a world, or skips the test where the enforcer cannot run. It ends with the test.
func NewPolicyWorld(t testing.TB, p spec.Proxier, topology lab.Topology) *PolicyWorld {
	t.Helper()
	topology.Nodes = []lab.NodeSpec{
		{Name: "n1", Pods: []lab.PodSpec{{Name: "x/a"}, {Name: "x/b"}, {Name: "y/a"}}},
		{Name: "n2", Pods: []lab.PodSpec{{Name: "x/c"}, {Name: "y/b"}}},
	}
	w := &PolicyWorld{build(t, topology, PolicyPorts...)}
	for _, ns := range []string{"x", "y"} {
		w.State.Namespaces = append(w.State.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns,
			Labels: map[string]string{"ns": ns}}})
	}
	for _, pod := range w.Pods() {
		w.State.Pods = append(w.State.Pods, PodOf(pod))
	}
	for _, place := range w.Places {
		w.Instances = append(w.Instances, Start(t, p, place))
	}
	w.Apply(t)
	return w
}

// Serve serves the PolicyPorts in a pod.
func (w *PolicyWorld) Serve(t testing.TB, pod *lab.Pod) { serve(t, pod, PolicyPorts...) }

// PodOf returns the API object of a pod of a lab.
func PodOf(p *lab.Pod) *corev1.Pod {
	namespace, name, _ := strings.Cut(p.Name(), "/")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"pod": name}},
		Spec:       corev1.PodSpec{NodeName: p.Node().Name()},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, a := range p.Addrs() {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: a.String()})
	}
	pod.Status.PodIP = pod.Status.PodIPs[0].IP
	return pod
}

// Apply changes the state of the nodes.
func (w *PolicyWorld) Apply(t Failer, changes ...func(*store.Snapshot)) {
	t.Helper()
	next := *w.State
	for _, c := range changes {
		c(&next)
	}
	w.apply(t, &next)
}

// Policies replaces all policies.
func Policies(all ...*networkingv1.NetworkPolicy) func(*store.Snapshot) {
	return func(s *store.Snapshot) { s.NetworkPolicies = all }
}

// Policy reads policies, in YAML, without apiVersion and kind.
func Policy(t testing.TB, text string) *networkingv1.NetworkPolicy {
	t.Helper()
	objects, err := manifest.Decode("policy", []byte("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	return objects[0].(*networkingv1.NetworkPolicy)
}

// Reach lists who reaches a pod, as "x/b tcp/80", by any family of the world; with " v4" or " v6" where they differ.
func (w *PolicyWorld) Reach(t testing.TB, pod string) []string {
	t.Helper()
	var all []string
	for _, from := range w.Pods() {
		if from.Name() == pod {
			continue
		}
		for _, port := range PolicyPorts {
			seen := map[bool][]string{}
			for _, f := range w.Stack().Families() {
				reached := w.Reaches(t, &from.Host, pod, f, port)
				seen[reached] = append(seen[reached], " "+f.String())
			}
			for _, f := range seen[true] {
				if len(seen[false]) == 0 {
					f = ""
				}
				all = append(all, fmt.Sprintf("%s %s/%d%s", from.Name(), port.Proto, port.Number, f))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Reaches reports whether a host reaches a port of a pod. A fence proves silence.
func (w *PolicyWorld) Reaches(t testing.TB, from *lab.Host, pod string, f lab.Family, port traffic.Port) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a := traffic.Probe{
		From: from.NS, To: netip.AddrPortFrom(w.Pod(pod).Addr(f), port.Number), Proto: port.Proto,
		Fences: []netip.Addr{w.fence(from, f)},
	}.Do(ctx)
	switch {
	case a.Fault != nil:
		t.Fatalf("%s -> %s %s/%d: %v", from.Name(), pod, port.Proto, port.Number, a.Fault)
	case a.Outcome == traffic.Reply && a.Greeting.Server != pod:
		t.Fatalf("%s -> %s: %s answered", from.Name(), pod, a.Greeting.Server)
	case a.Outcome != traffic.Reply && a.Outcome != traffic.Silence:
		t.Fatalf("%s -> %s: %v %s", from.Name(), pod, a.Outcome, a.Detail)
	}
	return a.Outcome == traffic.Reply
}

// fence returns an address that the host reaches whatever policies say: the node of a pod, or another node.
func (w *PolicyWorld) fence(from *lab.Host, f lab.Family) netip.Addr {
	for _, p := range w.Pods() {
		if p.NS == from.NS {
			return p.Node().Addr(f)
		}
	}
	i := slices.IndexFunc(w.Nodes(), func(n *lab.Node) bool { return n.NS != from.NS })
	return w.Nodes()[i].Addr(f)
}
