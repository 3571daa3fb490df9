// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// lives are the scenarios of pods that begin and end, and of enforcers and proxiers that do.
func lives() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "np-isolated-from-birth", Cluster: &spec.ClusterConfig{}, Needs: enforced,
			Given: four(policy("p", labels(), ingress())),
			Steps: []spec.Step{{Check: births}},
		},
		{
			ID: "np-terminating-pods", Needs: enforced,
			Given: four(policy("p", pod("a1"), ingress(allow(pods(pod("b2"))))),
				policy("q", pod("b1"), egress(allow(pods(pod("c2")))))),
			Steps: []spec.Step{
				step("all run", nil, open("a1", "b2"), shut("a1", "b1", "c2"), open("c2", "b1"), shut("b2", "b1")),
				step("peers and targets end", do(Terminate("a1", false), Terminate("b2", true), Terminate("b1", false)),
					open("a1", "b2"), shut("a1", "b1", "c2"), open("c2", "b1"), shut("b2", "b1")),
			},
		},
		{
			ID: "np-enforcer-restarts", Cluster: &spec.ClusterConfig{}, Needs: enforced,
			Given: four(policy("p", pod("a1"), ingress(allow(pods(pod("b2"))))), policy("q", pod("c2"), egress())),
			Steps: []spec.Step{{Check: During(judged, func(ctx context.Context, w spec.World, t spec.Traffic) {
				for range 3 {
					restart(ctx, w, t, w.EnforcerControl("n1"))
					restart(ctx, w, t, w.EnforcerControl("n2"))
				}
			})}},
		},
	}
}

// absences returns the scenarios of enforcers and proxiers that are away for a while, or leave.
func absences() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "np-change-while-away", Cluster: &spec.ClusterConfig{}, Needs: enforced,
			Given: four(policy("p", pod("a1"), ingress(allow(pods(pod("b2"))))), policy("gone", pod("b1"), ingress())),
			Steps: []spec.Step{
				step("before", nil, open("a1", "b2"), shut("a1", "c2"), shut("b1", "c2")),
				{Name: "it is away", Check: func(ctx context.Context, w spec.World) error {
					spec.TryDo(w.EnforcerControl("n1").Kill(ctx))
					return w.Expect(ctx, append(shut("a1", "c2", "b1"), shut("b1", "c2")...)...)
				}},
				{Name: "it is back", Do: do(Apply(policy("p", pod("a1"), ingress(allow(pods(pod("c2")))))),
					Delete("NetworkPolicy", "gone")),
					Check: func(ctx context.Context, w spec.World) error {
						spec.TryDo(w.EnforcerControl("n1").Start(ctx))
						return w.Expect(ctx, append(append(open("a1", "c2"), shut("a1", "b2", "b1")...),
							open("b1", "c2", "a1")...)...)
					}},
			},
		},
		{
			ID: "np-proxier-comes-later", Cluster: &spec.ClusterConfig{},
			Needs: append([]spec.Feature{spec.NodePort}, keepsSource...),
			Given: four(db("a1"), Service("db", Port(80, 8080), NodePort()),
				policy("p", labels("app", "db"), ingress(allow(pods(pod("b2")))))),
			Steps: []spec.Step{
				{Name: "before", Rows: throughPorts},
				{Name: "the proxier of n1 goes, and comes", Check: During(append(open("db-a1", "b2"),
					open("a1", "b1", "b2")...),
					func(ctx context.Context, w spec.World, t spec.Traffic) {
						for _, do := range []func(context.Context) error{w.ProxierControl("n1").Cleanup, w.ProxierControl("n1").Start,
							w.Settle} {
							spec.TryDo(errors.Join(do(ctx), t.Rounds(ctx, 2)))
						}
					})},
				{Name: "after", Check: func(ctx context.Context, w spec.World) error {
					// An enforcer that has to find its way back to the first place is given the time for it.
					spec.TryDo(Eventually(ctx, func(ctx context.Context) error { return asWanted(ctx, w, throughPorts) }))
					return w.Expect(ctx, throughPorts...)
				}},
			},
		},
		{
			ID: "np-enforcer-leaves", Cluster: &spec.ClusterConfig{}, Needs: enforced,
			Given: four(policy("p", labels(), ingress(allow(pods(pod("b2")), block("192.0.2.0/24"))))),
			Steps: []spec.Step{
				step("it is there", nil, shut("a1", "b1"), open("a1", "b2")),
				{Name: "it leaves n1", Check: func(ctx context.Context, w spec.World) error {
					spec.TryDo(w.EnforcerControl("n1").Cleanup(ctx))
					spec.TryDo(w.Expect(ctx, append(open("a1", "b1", "b2", "c2"), shut("b2", "c2", "b1")...)...))
					return nothingOf(ctx, w, "n1", "cali", "network-policy", "KUBE-ROUTER", "KUBE-NWPLCY", "KUBE-POD-FW")
				}},
			},
		},
		{
			ID: "np-forward-policy-drop", Cluster: &spec.ClusterConfig{}, Needs: enforced,
			Given: four(policy("p", pod("a1"), ingress(allow(pods(pod("b2")))))),
			Steps: []spec.Step{step("FORWARD accepts", nil, open("a1", "b2"), shut("a1", "c2")),
				{Name: "FORWARD drops", Do: do(ForwardPolicy("n1", "DROP")), Rows: append(shut("a1", "c2"), spec.Row{
					From: "b2", To: spec.HostAt("a1", 8080), Want: spec.Reply | denied, Servers: []string{"a1"},
					Choice: "allowed traffic through a FORWARD chain whose policy is DROP",
				})}},
		},
	}
}

// judged are rows of who is allowed and who is denied by the policies p and q.
var judged = []spec.Row{
	{From: "b2", To: spec.HostAt("a1", 8080), Servers: []string{"a1"}},
	{From: "b2", To: spec.HostAt("a1", 8080), Proto: "udp", Servers: []string{"a1"}},
	{From: "c2", To: spec.HostAt("a1", 8080), Proto: "udp", Want: denied},
	{From: "b1", To: spec.HostAt("a1", 8080), Want: denied},
	{From: "c2", To: spec.HostAt("b1", 8080), Proto: "udp", Want: denied},
	{From: "b1", To: spec.HostAt("c2", 8080), Proto: "udp", Servers: []string{"c2"}},
	{From: "b2", To: spec.HostAt("a1", 8080), Conn: "long", Servers: []string{"a1"}},
}

// throughPorts are rows to a pod that b2 alone may reach, through a NodePort, whose packets proxiers mark.
var throughPorts = []spec.Row{
	{From: "client", To: spec.NodePortAt("n1", "db", 80), Want: denied},
	{From: "c2", To: spec.NodePortAt("n1", "db", 80), Want: denied},
	{From: "c2", To: spec.ClusterIPOf("db", 80), Want: denied},
	{From: "b1", To: spec.ClusterIPOf("db", 80), Want: denied},
	{From: "b2", To: spec.ClusterIPOf("db", 80), Servers: []string{"db-a1"}},
}

// asWanted says which of the rows has another outcome than it wants.
func asWanted(ctx context.Context, w spec.World, rows []spec.Row) error {
	for _, r := range rows {
		for _, o := range spec.Try(w.Observe(ctx, r)) {
			if !r.Want.Allows(o.Outcome) {
				return fmt.Errorf("%s: %s", r.Probe(o.Family), o.Outcome)
			}
		}
	}
	return nil
}

// restart ends a program and starts it again, with traffic in each state.
func restart(ctx context.Context, w spec.World, t spec.Traffic, life spec.Control) {
	for _, do := range []func(context.Context) error{life.Kill, life.Start, w.Settle} {
		spec.TryDo(do(ctx))
		spec.TryDo(t.Rounds(ctx, 2))
	}
}

// births lets pods begin that others are already sending to: their address is known from a pod that has had it before.
// What a pod has received since its first moment, its counters tell.
func births(ctx context.Context, w spec.World) error {
	d := echo("d1", "n1")
	spec.MustDo(w.Apply(d))
	spec.TryDo(w.Settle(ctx))
	tcp := ResolveLiteral(w, spec.HostAt("d1", 8080), "tcp")
	end := func() error {
		RunActions(ctx, w, Delete("Pod", "d1"))
		return w.Settle(ctx)
	}
	spec.TryDo(end())
	var rows []spec.Row
	for _, from := range []string{"b1", "b2"} {
		rows = append(rows, spec.Row{From: from, To: tcp, Want: spec.NotServed},
			spec.Row{From: from, To: tcp, Proto: "udp", Want: spec.NotServed})
	}
	return w.During(ctx, rows, func(ctx context.Context, t spec.Traffic) error {
		for range 10 {
			spec.MustDo(w.Apply(d))
			spec.TryDo(errors.Join(w.Settle(ctx), t.Rounds(ctx, 2)))
			if now := ResolveLiteral(w, spec.HostAt("d1", 8080), "tcp"); now != tcp {
				return spec.HarnessErrorf("d1 is at %s, not at %s", now, tcp)
			}
			spec.TryDo(errors.Join(receivedNothing(ctx, w, "d1"), end()))
		}
		return nil
	})
}

// received are the counters of segments and datagrams that have come to a host. Those of TCP are of both families.
var received = []string{"Tcp.InSegs", "Udp.InDatagrams", "Udp.NoPorts", "Udp6InDatagrams", "Udp6NoPorts"}

// receivedNothing wants all of these counters of a pod to be 0.
func receivedNothing(ctx context.Context, w spec.World, pod string) error {
	counters := countersOf(spec.Must(w.Run(ctx, pod, "cat", "/proc/net/snmp", "/proc/net/snmp6")))
	for _, name := range received {
		switch value, ok := counters[name]; {
		case !ok:
			return spec.HarnessErrorf("pod %s has no counter %s", pod, name)
		case value != "0":
			return fmt.Errorf("pod %s has received packets: %s is %s", pod, name, value)
		}
	}
	return nil
}

// countersOf reads counters: of /proc/net/snmp, where a line of names comes before one of numbers ("Tcp.InSegs"), and
// of /proc/net/snmp6, where each line is a name and a number ("Udp6InDatagrams").
func countersOf(text string) map[string]string {
	counters := map[string]string{}
	var names []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) == 2:
			counters[words[0]] = words[1]
		case names == nil:
			names = words
		default:
			for i, value := range words {
				counters[strings.TrimSuffix(names[0], ":")+"."+names[i]] = value
			}
			names = nil
		}
	}
	return counters
}

// rulesetNames are the names of tables ("table FAMILY NAME {"), chains, sets and maps.
var rulesetNames = regexp.MustCompile(`(?m)^\s*(?:table \S+|chain|set|map) (\S+)`)

// nothingOf looks for names of tables, chains and sets that begin like those of enforcers.
func nothingOf(ctx context.Context, w spec.World, node string, prefixes ...string) error {
	ruleset := spec.Must(w.Run(ctx, node, "nft", "list", "ruleset"))
	names := strings.Fields(spec.Must(w.Run(ctx, node, "ipset", "list", "-n")))
	for _, m := range rulesetNames.FindAllStringSubmatch(ruleset, -1) {
		names = append(names, m[1])
	}
	for _, name := range names {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			return fmt.Errorf("%s still has %s", node, name)
		}
	}
	return nil
}
