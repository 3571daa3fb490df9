// SPDX-License-Identifier: Apache-2.0

// Package networkpolicy holds the scenarios of what NetworkPolicies do to Services and pods while things change. What
// each policy means by itself is for package internal/suite/netpol.
package networkpolicy

import (
	"context"
	_ "embed" // for Cases
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// Scenarios returns the scenarios of what NetworkPolicies do to Services and pods while things change. What each policy
// means by itself is for package internal/suite/netpol.
func Scenarios() []spec.Scenario {
	return slices.Concat(
		services(), backends(), servicePaths(), dns(), dynamic(), replaced(), addresses(), orders(), connections(),
		flows(),
		nodes(), nodePeers(), sources(), families(), lives(), absences(), atomic(), scale(), details(), portsAgain(),
		names(), latencies(), tunnels(), churn(),
		recreated(), latePods(), crowds(), unusual(),
	)
}

// four are the pods that most scenarios begin with: a1 on n1, its neighbour b1, and b2 and c2 on another node. Each has
// a label with its name.
func four(more ...store.Object) []store.Object {
	return append([]store.Object{echo("a1", "n1"), echo("b1", "n1"), echo("b2", "n2"), echo("c2", "n2")}, more...)
}

// Cases is cases.json: the static cases of NetworkPolicy, each with its policies and the table of what they block.
// Package internal/suite/netpol documents its format, reads it and runs it.
//
//go:embed cases.json
var Cases []byte

// orders are the scenarios of many changes after one another.
func orders() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "np-order-independent", Cluster: &spec.ClusterConfig{}, Needs: enforced,
			Given: four(),
			Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
				random := rand.New(rand.NewPCG(1, 2)) // the same orders in each run
				for i := range 20 {
					spec.TryDo(inSomeOrder(ctx, w, random, i%4 == 0))
				}
				return nil
			}}},
		},
		{
			ID: "np-label-flips", Needs: enforced,
			Given: four(policy("p", pod("a1"), ingress(allow(pods(labels("new", "1")))))),
			Steps: []spec.Step{
				step("it ends with the label", flips("b2", 101), open("a1", "b2"), shut("a1", "c2")),
				step("it ends without", flips("b2", 100), shut("a1", "b2", "c2")),
			},
		},
	}
}

// zeroTrust closes everything, but for what a1 asks b2 over TCP.
func zeroTrust() []store.Object {
	return []store.Object{
		policy("deny-in", labels(), ingress()), policy("deny-out", labels(), egress()),
		policy("out", pod("a1"), egress(allow(pods(pod("b2"))).on(corev1.ProtocolTCP, 8080))),
		policy("in", pod("b2"), ingress(allow(pods(pod("a1"))).on(corev1.ProtocolTCP, 8080))),
		policy("half", pod("c2"), ingress(allow(pods(pod("b1"))))),
	}
}

// inSomeOrder applies the policies of zeroTrust, deletes them in another order, and wants both to be seen.
func inSomeOrder(ctx context.Context, w spec.World, random *rand.Rand, oneByOne bool) error {
	all := zeroTrust()
	shuffle := func() { random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] }) }
	inTurn := func(change func(store.Object) spec.Action) {
		shuffle()
		for _, o := range all {
			RunActions(ctx, w, change(o))
			if oneByOne {
				spec.TryDo(w.Settle(ctx))
			}
		}
	}
	inTurn(func(o store.Object) spec.Action { return Apply(o) })
	rows := slices.Concat(shut("b2", "b1", "c2"), shut("c2", "b1"), shut("a1", "b2"), []spec.Row{
		{From: "a1", To: spec.HostAt("b2", 8080), Servers: []string{"b2"}},
		{From: "a1", To: spec.HostAt("b2", 8081), Want: denied},
		{From: "a1", To: spec.HostAt("b2", 8080), Proto: "udp", Want: denied},
	})
	spec.TryDo(w.Expect(ctx, rows...))
	inTurn(func(o store.Object) spec.Action { return Delete("NetworkPolicy", o.GetName()) })
	return w.Expect(ctx, slices.Concat(open("b2", "a1", "c2"), open("a1", "b2"))...)
}

// flips gives a pod the label new=1 and takes it away, so many times in all, without waiting.
func flips(name string, times int) []spec.Action {
	var all []spec.Action
	for i := range times {
		all = append(all, label(name, "new", []string{"1", ""}[i%2]))
	}
	return all
}
