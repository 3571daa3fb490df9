// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/viplab/viplab/lab/cluster/store"
)

// text is an Allow on one line.
func text(a Allow) string {
	var peer string
	switch {
	case a.Peer.Any:
		peer = "any"
	case len(a.Peer.Blocks) > 0:
		peer = fmt.Sprintf("%s except %s", strings.Trim(fmt.Sprint(a.Peer.Blocks), "[]"), a.Peer.Except)
	default:
		peer = fmt.Sprint(a.Peer.Addrs)
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s%s", peer, a.Protocol, strings.Trim(fmt.Sprint(a.Ports), "[]"),
		strings.Trim(fmt.Sprint(a.Named), "[]")))
}

func pod(namespace, name, ip string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"pod": name}},
		Spec:       corev1.PodSpec{NodeName: "n1"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func onNode(name string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = name } }

func phase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}

func serves(name string, port int32, proto corev1.Protocol) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Ports: []corev1.ContainerPort{{Name: name,
			ContainerPort: port, Protocol: proto}}})
	}
}

func world(pods ...*corev1.Pod) *store.Snapshot {
	s := &store.Snapshot{Pods: pods}
	for _, ns := range []string{"x", "y"} {
		s.Namespaces = append(s.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns,
			Labels: map[string]string{"ns": ns}}})
	}
	s.Namespaces[1].Labels["team"] = "red"
	return s
}

func port(number int) networkingv1.NetworkPolicyPort {
	p := intstr.FromInt(number)
	return networkingv1.NetworkPolicyPort{Port: &p}
}

func namedPort(name string, proto corev1.Protocol) networkingv1.NetworkPolicyPort {
	p := intstr.FromString(name)
	return networkingv1.NetworkPolicyPort{Port: &p, Protocol: &proto}
}

func span(first int, last int32) networkingv1.NetworkPolicyPort {
	p := port(first)
	p.EndPort = &last
	return p
}

func labeled(pairs ...string) *metav1.LabelSelector {
	s := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		s.MatchLabels[pairs[i]] = pairs[i+1]
	}
	return s
}

func expression(key string, op metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: op,
		Values: values}}}
}

type (
	peer = networkingv1.NetworkPolicyPeer
	rule = networkingv1.NetworkPolicyIngressRule
	to   = networkingv1.NetworkPolicyEgressRule
)

// TestAllows: what a policy of x for its pod a comes to.
func TestAllows(t *testing.T) {
	udp := corev1.ProtocolUDP
	for name, c := range map[string]struct {
		ingress []rule
		egress  []to
		want    []string
	}{
		"any":     {ingress: []rule{{}}, want: []string{"any"}},
		"no rule": {ingress: []rule{}},
		"own namespace": {ingress: []rule{{From: []peer{{PodSelector: labeled()}}}},
			want: []string{"[10.0.0.1 10.0.0.2]"}},
		"all namespaces": {ingress: []rule{{From: []peer{{NamespaceSelector: labeled()}}}},
			want: []string{"[10.0.0.1 10.0.0.2 10.0.1.1 10.0.1.2]"}},
		"both selectors": {ingress: []rule{{From: []peer{{NamespaceSelector: labeled("ns", "y"),
			PodSelector: labeled("pod", "b")}}}}, want: []string{"[10.0.1.2]"}},
		"NotIn of absent key": {ingress: []rule{{From: []peer{{NamespaceSelector: expression("team", "NotIn", "red")}}}},
			want: []string{"[10.0.0.1 10.0.0.2]"}},
		"nobody":   {ingress: []rule{{From: []peer{{PodSelector: labeled("pod", "z")}}}}},
		"no field": {ingress: []rule{{From: []peer{{}}}}},
		"selector not valid": {ingress: []rule{{From: []peer{{PodSelector: expression("pod", "Foo", "a")},
			{PodSelector: labeled("pod", "b")}}}}, want: []string{"[10.0.0.2]"}},
		"protocol left out": {ingress: []rule{{Ports: []networkingv1.NetworkPolicyPort{{}}}}, want: []string{"any TCP"}},
		"ranges merged": {ingress: []rule{{Ports: []networkingv1.NetworkPolicyPort{port(82), span(80, 81),
			span(90, 95), port(92), port(65535)}}}, want: []string{"any TCP 80-82 90-95 65535"}},
		"wide and narrow": {ingress: []rule{{Ports: []networkingv1.NetworkPolicyPort{port(80), {}}}},
			want: []string{"any TCP"}},
		"range upside down": {ingress: []rule{{Ports: []networkingv1.NetworkPolicyPort{span(90, 80)}}}},
		"named, of the target": {ingress: []rule{{From: []peer{{NamespaceSelector: labeled("ns", "y")}},
			Ports: []networkingv1.NetworkPolicyPort{namedPort("web", "TCP")}}},
			want: []string{"[10.0.1.1 10.0.1.2] TCP 10.0.0.1:80"}},
		"named, other protocol": {ingress: []rule{{Ports: []networkingv1.NetworkPolicyPort{namedPort("web", udp)}}}},
		"named, egress": {egress: []to{{To: []peer{{NamespaceSelector: labeled("ns", "y")}},
			Ports: []networkingv1.NetworkPolicyPort{namedPort("web", "TCP")}}},
			want: []string{"any TCP 10.0.1.1:81 10.0.1.2:82"}},
		"named, in a block": {egress: []to{{To: []peer{{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.1.0/24",
			Except: []string{"10.0.1.2/32"}}}}, Ports: []networkingv1.NetworkPolicyPort{namedPort("web", "TCP")}}},
			want: []string{"any TCP 10.0.1.1:81"}},
		"host bits": {ingress: []rule{{From: []peer{{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.1.9/24"}}}}},
			want: []string{"10.0.1.0/24 except []"}},
		"leading zeros": {ingress: []rule{{From: []peer{{IPBlock: &networkingv1.IPBlock{CIDR: "010.000.001.000/24"}}}}},
			want: []string{"10.0.1.0/24 except []"}},
		"blocks are one": {ingress: []rule{{From: []peer{{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.1.0/24"}},
			{PodSelector: labeled("pod", "b")}, {IPBlock: &networkingv1.IPBlock{CIDR: "fd00::/64"}}},
			Ports: []networkingv1.NetworkPolicyPort{port(80)}}}, want: []string{"[10.0.0.2] TCP 80",
			"10.0.1.0/24 fd00::/64 except [] TCP 80"}},
		"named, in two blocks": {egress: []to{{To: []peer{{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.1.0/24"}},
			{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.1.2/32"}}}, Ports: []networkingv1.NetworkPolicyPort{namedPort("web",
			"TCP")}}}, want: []string{"any TCP 10.0.1.1:81 10.0.1.2:82"}},
		"one has an exception": {ingress: []rule{{From: []peer{{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8",
			Except: []string{"10.0.1.0/24"}}}, {IPBlock: &networkingv1.IPBlock{CIDR: "10.0.1.2/32"}}}}},
			want: []string{"10.0.0.0/8 except [10.0.1.0/24]", "10.0.1.2/32 except []"}},
		"block not valid": {ingress: []rule{{From: []peer{{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.1/24"}}}}}},
		"except not valid": {ingress: []rule{{From: []peer{{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8",
			Except: []string{"10"}}}}}}},
		"peers and protocols": {ingress: []rule{{From: []peer{{PodSelector: labeled("pod", "b")},
			{IPBlock: &networkingv1.IPBlock{CIDR: "fd00::/64"}}}, Ports: []networkingv1.NetworkPolicyPort{port(80),
			{Protocol: &udp}}}}, want: []string{"[10.0.0.2] TCP 80", "[10.0.0.2] UDP", "fd00::/64 except [] TCP 80",
			"fd00::/64 except [] UDP"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := world(pod("x", "a", "10.0.0.1", serves("web", 80, "")), pod("x", "b", "10.0.0.2", serves("web", 8080, "UDP")),
				pod("y", "a", "10.0.1.1", onNode("n2"), serves("web", 81, "TCP")),
				pod("y", "b", "10.0.1.2", serves("web", 82, "TCP")))
			types := []networkingv1.PolicyType{"Ingress"}
			if c.egress != nil {
				types = []networkingv1.PolicyType{"Egress"}
			}
			s.NetworkPolicies = []*networkingv1.NetworkPolicy{{
				ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "p"},
				Spec: networkingv1.NetworkPolicySpec{PodSelector: *labeled("pod", "a"), PolicyTypes: types,
					Ingress: c.ingress, Egress: c.egress},
			}}
			state := (&Compiler{Node: "n1"}).Compile(s)
			if len(state.Policies) != 1 || len(state.Pods) != 3 {
				t.Fatalf("%d policies, %d pods", len(state.Policies), len(state.Pods))
			}
			var got []string
			for _, a := range state.Policies[0].Allows {
				got = append(got, text(a))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestDirections: what is left out is what an API server would write there.
func TestDirections(t *testing.T) {
	for _, c := range []struct {
		types  []networkingv1.PolicyType
		egress []to
		want   []Direction
	}{
		{nil, nil, []Direction{Ingress}},
		{nil, []to{}, []Direction{Ingress}},
		{nil, []to{{}}, []Direction{Ingress, Egress}},
		{[]networkingv1.PolicyType{"Egress"}, nil, []Direction{Egress}},
		{[]networkingv1.PolicyType{"Egress", "Ingress"}, nil, []Direction{Ingress, Egress}},
	} {
		np := &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{PolicyTypes: c.types, Egress: c.egress}}
		if got := directions(np); !slices.Equal(got, c.want) {
			t.Errorf("types %v, egress %v: got %v, want %v", c.types, c.egress, got, c.want)
		}
	}
}

// TestPods: whose addresses count, and whom a selector can mean.
func TestPods(t *testing.T) {
	day := func(n int) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, n, 0, 0, 0, 0, time.UTC)) }
	}
	leaving := func(p *corev1.Pod) { now := metav1.Now(); p.DeletionTimestamp = &now }
	hostNetwork := func(p *corev1.Pod) { p.Spec.HostNetwork = true }
	dual := func(p *corev1.Pod) { p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}} }
	for name, c := range map[string]struct {
		pods []*corev1.Pod
		want []string
	}{
		"dual stack":   {[]*corev1.Pod{pod("x", "a", "10.0.0.1", dual)}, []string{"x/a [10.0.0.1 fd00::1]"}},
		"host network": {[]*corev1.Pod{pod("x", "a", "192.168.7.11", hostNetwork)}, nil},
		"no address": {[]*corev1.Pod{pod("x", "a", "", phase(corev1.PodPending)), pod("x", "b", "10.0.0.2")},
			[]string{"x/b [10.0.0.2]"}},
		"completed": {[]*corev1.Pod{pod("x", "a", "10.0.0.1", phase(corev1.PodSucceeded)),
			pod("x", "b", "10.0.0.2", phase(corev1.PodFailed))}, nil},
		"terminating": {[]*corev1.Pod{pod("x", "a", "10.0.0.1", leaving)}, []string{"x/a [10.0.0.1]"}},
		"newer pod": {[]*corev1.Pod{pod("x", "a", "10.0.0.1", day(1)), pod("y", "a", "10.0.0.1", day(2))},
			[]string{"y/a [10.0.0.1]"}},
		"newer pod first": {[]*corev1.Pod{pod("x", "a", "10.0.0.1", day(2)), pod("y", "a", "10.0.0.1", day(1))},
			[]string{"x/a [10.0.0.1]"}},
		"one leaves": {[]*corev1.Pod{pod("x", "a", "10.0.0.1", day(1), leaving), pod("y", "a", "10.0.0.1", day(1))},
			[]string{"y/a [10.0.0.1]"}},
		"other node": {[]*corev1.Pod{pod("x", "a", "10.0.0.1", onNode("n2"))}, nil},
	} {
		var got []string
		for _, p := range (&Compiler{Node: "n1"}).Compile(world(c.pods...)).Pods {
			got = append(got, fmt.Sprintf("%s %s", p.Label(), p.Addrs))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// TestCompileOnce: what does not matter to policies costs nothing.
func TestCompileOnce(t *testing.T) {
	s := world(pod("x", "a", "10.0.0.1"))
	c := &Compiler{Node: "n1"}
	first := c.Compile(s)
	next := *s
	next.Revision, next.Services = 2, []*corev1.Service{{}}
	if c.Compile(&next) != first {
		t.Error("compiled again for a Service")
	}
	next.Pods = []*corev1.Pod{pod("x", "a", "10.0.0.2")}
	if second := c.Compile(&next); second == first || second.Pods[0].Addrs[0] != netip.MustParseAddr("10.0.0.2") {
		t.Error("a pod's new address was missed")
	}
}

// TestPlain: no name can end a word of a rule, or a line.
func TestPlain(t *testing.T) {
	if got := Plain("x/a-b.c_9\n\" drop; ä"); got != "x/a-b.c_9...drop...." {
		t.Errorf("got %q", got)
	}
}
