// SPDX-License-Identifier: Apache-2.0

package mechanisms

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// restart returns the scenarios of proxiers that end, come back, change their mode or leave.
func restart() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "rr-restart-transparent", Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
			Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.InKernel},
			Given: world(),
			Steps: []spec.Step{{Check: During(every, func(ctx context.Context, w spec.World, t spec.Traffic) {
				spec.TryDo(w.ProxierControl("n1").Kill(ctx))
				spec.TryDo(t.Rounds(ctx, downFor))
				spec.TryDo(w.ProxierControl("n1").Start(ctx))
				spec.TryDo(w.Settle(ctx))
				spec.TryDo(t.Rounds(ctx, 5))
			})}},
		},
		{
			ID: "rr-no-partial-first-sync", Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
			Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.InKernel},
			Given: world(),
			Steps: []spec.Step{{Check: During(every, func(ctx context.Context, w spec.World, t spec.Traffic) {
				release := spec.Try(w.ProxierControl("n1").StartWithoutEndpoints(ctx))
				defer release()
				spec.TryDo(t.Rounds(ctx, downFor))
				release()
				spec.TryDo(w.Settle(ctx))
				spec.TryDo(t.Rounds(ctx, 5))
			})}},
		},
		{
			ID: "rr-atomic-updates", Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
			Given: world(Backend("a3", "n3", App("restless")), Backend("b3", "n3", App("restless")),
				Service("restless", NodePort())),
			Steps: []spec.Step{{Check: During(slices.Concat(every, []spec.Row{
				// TCP connections to an endpoint that leaves meanwhile live on, so these may all be wanted to work.
				{From: "c1", To: spec.ClusterIPOf("restless", 80), Servers: []string{"a3", "b3"}},
				{From: "client", To: spec.NodePortAt("n1", "restless", 80), Servers: []string{"a3", "b3"}},
			}), func(ctx context.Context, w spec.World, t spec.Traffic) {
				for i := range rewrites {
					RunActions(ctx, w, rewrite(i)...)
					spec.TryDo(t.Rounds(ctx, 1))
				}
				spec.TryDo(w.Settle(ctx))
				spec.TryDo(t.Rounds(ctx, 1)) // also after the last change
			})}},
		},
		drift(), writesRefused(), watchRelist(), deletedExternally(), tableDeleted(), modeSwitch(), foreignRules(),
		cleanup(),
	}
}

// backends are behind every Service here: one on the node whose proxier is handled, one elsewhere.
var backends = []string{"b1", "a2"}

// world is a Service for TCP and UDP with a NodePort.
func world(more ...store.Object) []store.Object {
	return append([]store.Object{
		Pod("c1", "n1"), Backend("b1", "n1", UDP(8080)), Backend("a2", "n2", UDP(8080)),
		Service("web", NodePort(), Port(80, 8080), UDPPort(80, 8080)),
	}, more...)
}

// fresh are new connections, by every way into n1.
var fresh = []spec.Row{
	{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: backends},
	{From: "n1", To: spec.ClusterIPOf("web", 80), Servers: backends},
	{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: backends},
	{From: "c1", To: spec.ClusterIPOf("web", 80), Proto: "udp", Servers: backends},
}

// kept are connections that were there before, by the same ways.
var kept = []spec.Row{
	{From: "c1", To: spec.ClusterIPOf("web", 80), Conn: "tcp", Servers: backends},
	{From: "c1", To: spec.ClusterIPOf("web", 80), Proto: "udp", Conn: "udp", Servers: backends},
	{From: "client", To: spec.NodePortAt("n1", "web", 80), Conn: "nodeport", Servers: backends},
}

// every is both.
var every = slices.Concat(fresh, kept)

// downFor is how many probes of each row meet a node without a proxier.
const downFor = 15

// rewrites is how many changes meet the traffic: enough to make each node write its rules over and over.
const rewrites = 12

// rewrite returns the i-th of many changes: an endpoint leaves or joins, a Service comes or goes.
func rewrite(i int) []spec.Action {
	if i%2 == 0 {
		return []spec.Action{Readiness("a3", false), Apply(Service("passing", Selecting("web"), NodePort()))}
	}
	return []spec.Action{Readiness("a3", true), Delete("Service", "passing")}
}

func modeSwitch() spec.Scenario {
	return spec.Scenario{
		ID: "rr-mode-switch", Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
		Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.SourceAddress, spec.KernelNAT, spec.InKernel,
			spec.ModeSwitch},
		Given: world(Service("gone", Selecting("web"), NodePort())),
		Steps: []spec.Step{
			{Name: "before", Rows: kept},
			{
				Name: "another mode takes over",
				Check: During(kept, func(ctx context.Context, w spec.World, t spec.Traffic) {
					spec.TryDo(w.ProxierControl("n1").Switch(ctx))
					spec.TryDo(w.Settle(ctx))
					spec.TryDo(t.Rounds(ctx, 5))
				}),
			},
			{Name: "the other mode serves", Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: backends, SeenAs: spec.ClientAddr(),
					Flow: spec.TranslatedOn("n1")},
				{From: "n1", To: spec.ClusterIPOf("web", 80), Servers: backends},
				{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: backends, Flow: spec.MasqueradedOn("n1")},
				{From: "c1", To: spec.ClusterIPOf("web", 80), Proto: "udp", Servers: backends, Flow: spec.TranslatedOn("n1")},
				{From: "c1", To: spec.ClusterIPOf("gone", 80), Servers: backends},
			}},
			{Name: "a Service goes, of which the old mode was not told", Check: func(ctx context.Context, w spec.World) error {
				vip, nodePort := ResolveLiteral(w, spec.ClusterIPOf("gone", 80), "tcp"),
					ResolveLiteral(w, spec.NodePortAt("n1", "gone", 80), "tcp")
				spec.MustDo(w.Store().Delete(store.KindService, w.Namespace(), "gone"))
				return w.Expect(ctx, spec.Row{From: "c1", To: vip, Want: spec.NotServed},
					spec.Row{From: "client", To: nodePort, Want: spec.NotServed})
			}},
		},
	}
}

// drift lets an endpoint leave while a connection to it is open. IPVS keeps such an endpoint, with weight 0, so a
// proxier of IPVS must also find out that the endpoint is back.
func drift() spec.Scenario {
	return spec.Scenario{
		ID: "rr-restart-with-drift", Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
		Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a2", "n2"), Backend("a3", "n3"), Service("web"),
			Service("gone", Selecting("web"), NodePort()), Service("changed", Selecting("web")),
		},
		Steps: []spec.Step{
			{
				Name: "a connection to a2 is open", Do: []spec.Action{Readiness("a3", false)},
				Rows: []spec.Row{{From: "c1", To: spec.ClusterIPOf("web", 80), Conn: "open", Servers: []string{"a2"}}},
			},
			{
				Name: "a3 takes the place of a2", Do: []spec.Action{Readiness("a3", true), Readiness("a2", false)},
				Rows: []spec.Row{{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a3"}}},
			},
			{Name: "much changes while the proxier of n1 is away", Check: changesWhileAway},
		},
	}
}

func changesWhileAway(ctx context.Context, w spec.World) error {
	goneVIP := ResolveLiteral(w, spec.ClusterIPOf("gone", 80), "tcp")
	gonePort := ResolveLiteral(w, spec.NodePortAt("n1", "gone", 80), "tcp")
	formerPort := ResolveLiteral(w, spec.ClusterIPOf("changed", 80), "tcp")
	spec.TryDo(w.ProxierControl("n1").Kill(ctx))
	RunActions(ctx, w, Readiness("a2", true), Delete("Service", "gone"),
		Apply(Service("new", Selecting("web"), NodePort())),
		Edit("changed", func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 }))
	spec.TryDo(w.ProxierControl("n1").Start(ctx))
	both := []string{"a2", "a3"}
	return w.Expect(ctx,
		spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: both, Even: true},
		spec.Row{From: "c1", To: spec.ClusterIPOf("new", 80), Servers: both},
		spec.Row{From: "client", To: spec.NodePortAt("n1", "new", 80), Servers: both},
		spec.Row{From: "c1", To: spec.ClusterIPOf("changed", 81), Servers: both},
		spec.Row{From: "c1", To: goneVIP, Want: spec.NotServed},
		spec.Row{From: "client", To: gonePort, Want: spec.NotServed},
		spec.Row{From: "c1", To: formerPort, Want: spec.NotServed},
	)
}
