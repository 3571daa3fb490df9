// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// atomic are the scenarios of changes that some clients must not notice: nothing of what was denied before and is
// denied after passes meanwhile, and nothing that was allowed is lost. Each datagram of the rows is of a flow of its
// own. They have clusters of their own, where each change is programmed by itself.
func atomic() []spec.Scenario {
	return []spec.Scenario{
		unnoticed("np-reapplied", 5,
			Apply(toldBy("p", "more")), Apply(toldBy("p", "")), Apply(inOtherWords()), Apply(toldBy("p", "")),
		),
		unnoticed("np-others-come-and-go", 5,
			Apply(policy("other", pod("b1"), ingress(allow(pods(pod("a1")))))),
			Apply(policy("too", pod("a1"), ingress(allow(block("192.0.2.0/24"))))),
			Delete("NetworkPolicy", "other"), Delete("NetworkPolicy", "too"),
		),
		unnoticed("np-members-change", 5,
			label("b1", "friend", "yes"), Apply(echo("d2", "n2", Labelled("friend", "yes"))), label("b1", "friend", ""),
			Delete("Pod", "d2"),
		),
		unnoticed("np-policy-handed-over", 5,
			Apply(toldBy("q", "")), Delete("NetworkPolicy", "p"), Apply(toldBy("p", "")), Delete("NetworkPolicy", "q"),
		),
		unnoticed("np-large-set-rewritten", 2,
			Apply(manyBlocks(0)), Apply(manyBlocks(1000)), Apply(toldBy("p", "")),
		),
		{
			ID: "np-once-closed", Cluster: &spec.ClusterConfig{}, Needs: enforced,
			Given: four(),
			Steps: []spec.Step{{Check: eachFlow(turns)}},
		},
	}
}

// toldBy is a policy that lets friends come to a1, with a label of its own.
func toldBy(name, remark string) store.Object {
	p := policy(name, pod("a1"), ingress(allow(pods(labels("friend", "yes")))))
	p.Labels = map[string]string{"remark": remark}
	return p
}

// inOtherWords is the policy p that lets the same in: by two peers, with a port that is the only one asked for.
func inOtherWords() store.Object {
	friends := pods(labels("friend", "yes"))
	return policy("p", pod("a1"), ingress(
		allow(friends, pods(pod("b2"))).on(corev1.ProtocolUDP, 8080).on(corev1.ProtocolUDP, 8081),
		allow(friends).on(corev1.ProtocolTCP, 8080),
	))
}

// manyBlocks is the policy p with a thousand blocks beside the friends.
func manyBlocks(first int) store.Object {
	peers := []networkingv1.NetworkPolicyPeer{pods(labels("friend", "yes"))}
	for i := first; i < first+1000; i++ {
		peers = append(peers, block(fmt.Sprintf("198.18.%d.%d/32", i/250, i%250)), block(fmt.Sprintf("2001:db8::%x/128", i)))
	}
	return policy("p", pod("a1"), ingress(allow(peers...)))
}

// unnoticed is a scenario in which changes go round so many times, under traffic that none of them is to touch.
func unnoticed(id string, rounds int, changes ...spec.Action) spec.Scenario {
	return spec.Scenario{
		ID: id, Needs: enforced, Cluster: &spec.ClusterConfig{},
		Given: untouched(toldBy("p", "")),
		Steps: []spec.Step{{Check: During(untouchedRows, func(ctx context.Context, w spec.World, t spec.Traffic) {
			for range rounds {
				eachSettled(ctx, w, t, changes...)
			}
		})}},
	}
}

// untouched are the four pods, of which b2 is a friend, and more.
func untouched(more ...store.Object) []store.Object {
	return append([]store.Object{echo("a1", "n1"), echo("b1", "n1"), echo("b2", "n2", Labelled("friend", "yes")),
		echo("c2", "n2")}, more...)
}

// untouchedRows are rows of who is allowed and who is denied as long as a1 lets its friends in.
var untouchedRows = []spec.Row{
	{From: "b2", To: spec.HostAt("a1", 8080), Proto: "udp", Servers: []string{"a1"}},
	{From: "c2", To: spec.HostAt("a1", 8080), Proto: "udp", Want: denied},
	// one that leaks is answered, and the flow stays open
	{From: "c2", To: spec.HostAt("a1", 8080), Proto: "udp", Conn: "kept", Want: denied},
	{From: "c2", To: spec.HostAt("b2", 8080), Proto: "udp", Servers: []string{"b2"}},
	{From: "n1", To: spec.HostAt("a1", 8080), Proto: "udp", Servers: []string{"a1"}},
}

// eachSettled makes changes one after another, with traffic after each.
func eachSettled(ctx context.Context, w spec.World, t spec.Traffic, changes ...spec.Action) {
	for _, c := range changes {
		RunActions(ctx, w, c)
		spec.TryDo(w.Settle(ctx))
		spec.TryDo(t.Rounds(ctx, 1))
	}
}
