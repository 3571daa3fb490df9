// SPDX-License-Identifier: Apache-2.0

package services

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/internal/suite/services/oracle"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
)

// policed is a cluster with the pods a1 and b1 of n1 and a2 of n2, and policies.
func policed(all ...*networkingv1.NetworkPolicy) *store.Snapshot {
	s := &store.Snapshot{NetworkPolicies: all}
	for _, p := range []struct{ name, node, app, addr string }{
		{"a1", "n1", "web", "10.244.1.2"}, {"b1", "n1", "other", "10.244.1.3"}, {"a2", "n2", "web", "10.244.2.2"},
	} {
		pod := pod(p.name, p.node, p.app)
		pod.Namespace, pod.Status.PodIPs = "x", []corev1.PodIP{{IP: p.addr}}
		s.Pods = append(s.Pods, pod)
	}
	return s
}

// rules returns one policy, of the pods with a label. It isolates them, and lets those of the other label through.
func rules(direction networkingv1.PolicyType, app, peer string) []*networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: app, Namespace: "x"}}
	p.Spec.PodSelector.MatchLabels = map[string]string{"app": app}
	p.Spec.PolicyTypes = []networkingv1.PolicyType{direction}
	others := &metav1.LabelSelector{MatchLabels: map[string]string{"app": peer}}
	peers := []networkingv1.NetworkPolicyPeer{{PodSelector: others}}
	if peer == "anybody" {
		peers = nil
	}
	ports := []networkingv1.NetworkPolicyPort{{Protocol: ptr.To(corev1.ProtocolTCP)}}
	if direction == networkingv1.PolicyTypeIngress {
		p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: peers, Ports: ports}}
	} else {
		p.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: peers}}
	}
	return []*networkingv1.NetworkPolicy{p}
}

func TestPoliciesChangeAnswers(t *testing.T) {
	const in, out = networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress
	from := func(name, kind, addr, node string) sender {
		s := oracle.Sender{Addr: netip.MustParseAddr(addr), Node: node, Pod: kind == "pod"}
		return sender{name: name, kind: kind, Sender: s}
	}
	b1, a1 := from("b1", "pod", "10.244.1.3", "n1"), from("a1", "pod", "10.244.1.2", "n1")
	n1, client := from("n1", "node", "192.168.7.11", "n1"), from("client", "client", "192.168.7.201", "")
	both := []string{"10.244.1.2", "10.244.2.2"}
	for _, c := range []struct {
		name     string
		policies []*networkingv1.NetworkPolicy
		from     sender
		kind     string
		protocol corev1.Protocol
		source   oracle.Source
		verdict  oracle.Verdict
		servers  []string
		hidden   bool
		want     oracle.Verdict
		left     []string
	}{
		{name: "no policy", from: b1, servers: both, want: oracle.Served, left: both},
		{name: "of others", policies: rules(in, "other", "web"), from: b1, servers: both,
			want: oracle.Served, left: both},
		{name: "allowed", policies: rules(in, "web", "other"), from: b1, servers: both,
			want: oracle.Served, left: both},
		{name: "denied", policies: rules(in, "web", "web"), from: b1, servers: both,
			want: oracle.NotServed},
		{name: "another protocol", policies: rules(in, "web", "other"), from: b1,
			protocol: corev1.ProtocolUDP, servers: both, want: oracle.NotServed},
		{name: "relays hide the client", policies: rules(in, "web", "web"), from: b1,
			servers: both, hidden: true, want: oracle.MayBeServed, left: both},
		{name: "itself is open, the other is allowed", policies: rules(in, "web", "web"),
			from: a1, servers: both, want: oracle.MayBeServed, left: both},
		{name: "itself is open, the other is denied", policies: rules(in, "web", "other"),
			from: a1, servers: both, want: oracle.MayBeServed, left: both[:1]},
		{name: "the endpoint's own node", policies: rules(in, "web", "other"), from: n1,
			source: oracle.AnySource, servers: both[:1], want: oracle.Served, left: both[:1]},
		{name: "another node", policies: rules(in, "web", "other"), from: n1,
			source: oracle.AnySource, servers: both[1:], want: oracle.MayBeServed, left: both[1:]},
		{name: "anybody", policies: rules(in, "web", "anybody"), from: client,
			kind: "nodeport", source: oracle.ClientOrNode, servers: both, want: oracle.Served, left: both},
		{name: "a client whose address a node may replace",
			policies: rules(in, "web", "other"), from: client, kind: "nodeport",
			source: oracle.ClientOrNode, servers: both, want: oracle.MayBeServed, left: both},
		{name: "egress allowed", policies: rules(out, "other", "web"), from: b1,
			servers: both, want: oracle.Served, left: both},
		{name: "egress denied", policies: rules(out, "other", "other"), from: b1,
			servers: both, want: oracle.NotServed},
		{name: "egress to a NodePort is open",
			policies: rules(out, "other", "other"), from: b1, kind: "nodeport",
			servers: both, want: oracle.MayBeServed, left: both},
		{name: "egress may hide a refusal", policies: rules(out, "other", "web"), from: b1,
			verdict: oracle.Refused, want: oracle.NotServed},
		{name: "ingress changes no refusal", policies: rules(in, "other", "web"), from: b1,
			verdict: oracle.Refused, want: oracle.Refused},
		{name: "open stays open", policies: rules(out, "other", "other"), from: b1,
			verdict: oracle.Open, want: oracle.Open},
	} {
		q := question{from: c.from, to: door{kind: "clusterip", protocol: corev1.ProtocolTCP}}
		if c.kind != "" {
			q.to.kind = c.kind
		}
		if c.protocol != "" {
			q.to.protocol = c.protocol
		}
		q.answer = oracle.Answer{Verdict: c.verdict, Source: c.source, Rules: []oracle.Rule{{Name: "before"}}}
		if c.servers != nil {
			q.answer.Verdict = oracle.Served
			if c.kind == "" && c.from.kind == "pod" {
				q.answer.Source = oracle.Client
			}
		}
		for _, s := range c.servers {
			q.answer.Endpoints = append(q.answer.Endpoints, netip.AddrPortFrom(netip.MustParseAddr(s), 8080))
		}
		before := q.answer
		i := newIsolation(policed(c.policies...), c.hidden)
		i.judge(&q)
		var left []string
		for _, e := range q.answer.Endpoints {
			left = append(left, e.Addr().String())
		}
		if q.answer.Verdict != c.want || !slices.Equal(left, c.left) {
			t.Errorf("%s: %s by %v, want %s by %v", c.name, q.answer.Verdict, left, c.want, c.left)
		}
		same := c.want == before.Verdict && len(c.left) == len(c.servers)
		if got := i.indifferent(q, before); got != same {
			t.Errorf("%s: policies are indifferent: %t", c.name, got)
		}
		if named := q.answer.Rule() == isolated; named == same {
			t.Errorf("%s: the answer names the rule of policies: %t", c.name, named)
		}
	}
}

// Policies change nothing else in a case, and every kind of change is generated.
func TestPoliciesAreAddedToCases(t *testing.T) {
	seen := map[string]bool{}
	for number := range uint64(60) {
		c, again := Random(9, number), Random(9, number)
		c.isolate(9, number)
		again.isolate(9, number)
		one, _ := json.Marshal(c)
		other, _ := json.Marshal(again)
		if string(one) != string(other) {
			t.Fatalf("case %d: %s\n%s", number, one, other)
		}
		for _, s := range c.States {
			for _, kind := range s.Kinds {
				seen[kind] = true
			}
		}
		playOnPaper(t, c, lab.V4, lab.V6)
		bare := Random(9, number)
		for i := range c.States {
			c.States[i].Policies, c.States[i].Kinds, c.States[i].Change = nil, nil, ""
			bare.States[i].Kinds, bare.States[i].Change = nil, ""
		}
		one, _ = json.Marshal(c)
		other, _ = json.Marshal(bare)
		if string(one) != string(other) {
			t.Fatalf("case %d: policies change more: %s\n%s", number, one, other)
		}
	}
	for _, kind := range policyChanges {
		if !seen[kind.name] {
			t.Errorf("no %s", kind.name)
		}
	}
}
