// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// crowds returns the scenarios of many namespaces.
func crowds() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "np-namespaces-at-once", Cluster: &spec.ClusterConfig{}, Needs: enforced,
			Given: four(policy("p", pod("a1"), ingress(allow(podsIn(labels("kind", "friend"), labels()))))),
			Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
				for round := range 20 {
					spec.TryDo(comeAtOnce(ctx, w, round))
				}
				return nil
			}}},
		},
		{
			ID: "np-isolated-namespaces", Cluster: &spec.ClusterConfig{}, Needs: enforced,
			Given: isolatedNamespaces(),
			Steps: []spec.Step{
				{Name: "a pod in each", Rows: acrossNamespaces("a")},
				{Name: "another one in each", Do: do(Apply(eachNamespace(inhabitant("b"))...)), Rows: acrossNamespaces("a", "b")},
			},
		},
	}
}

// comeAtOnce makes ten namespaces with two pods and a policy each, all in one transaction, judges them, and deletes
// them. Every other one is a friend of a1.
func comeAtOnce(ctx context.Context, w spec.World, round int) error {
	const together = 10
	var all []store.Object
	var rows []spec.Row
	var leave []spec.Action
	for i := range together {
		name := fmt.Sprintf("np-namespaces-at-once-%d", round*together+i)
		a, b := name+"/a2", name+"/b1"
		kind := []string{"friend", "stranger"}[i%2]
		all = append(all, Namespace(name, map[string]string{"kind": kind}),
			in(name, policy("p", pod("a2"), ingress(allow(pods(pod("b1")))))),
			echo("a2", "n2", In(name)), echo("b1", "n1", In(name)))
		toA1 := map[string]func(string, ...string) []spec.Row{"friend": open, "stranger": shut}[kind]
		rows = slices.Concat(rows, open(a, b), shut(a, "b1", "c2"), toA1("a1", a, b))
		leave = append(leave, deleteNamespace(name))
	}
	spec.MustDo(w.Apply(all...))
	err := errors.Join(w.Settle(ctx), w.Expect(ctx, rows...))
	RunActions(ctx, w, leave...)
	return err
}

// isolated is the number of namespaces whose pods reach their own namespace alone.
const isolated = 18

func isolatedNamespace(i int) string { return fmt.Sprintf("np-isolated-namespaces-%d", i) }

// eachNamespace returns the objects that make returns for the isolated namespaces.
func eachNamespace(make func(i int) store.Object) []store.Object {
	var all []store.Object
	for i := range isolated {
		all = append(all, make(i))
	}
	return all
}

// inhabitant returns the pod of a name for each namespace. Those of one namespace are on different nodes.
func inhabitant(name string) func(i int) store.Object {
	return func(i int) store.Object {
		return echo(name, fmt.Sprintf("n%d", (i+int(name[0]))%3+1), In(isolatedNamespace(i)))
	}
}

func isolatedNamespaces() []store.Object {
	return slices.Concat(
		eachNamespace(func(i int) store.Object { return Namespace(isolatedNamespace(i), nil) }),
		eachNamespace(func(i int) store.Object {
			own := allow(pods(labels()))
			return in(isolatedNamespace(i), policy("own", labels(), ingress(own), egress(own)))
		}),
		eachNamespace(inhabitant("a")),
	)
}

// acrossNamespaces are rows from every pod of these names to every other one, one half of them over TCP and the other
// over UDP.
func acrossNamespaces(names ...string) []spec.Row {
	var rows []spec.Row
	for from := range isolated * len(names) {
		for to := range isolated * len(names) {
			if from == to {
				continue
			}
			name := func(i int) string { return isolatedNamespace(i%isolated) + "/" + names[i/isolated] }
			row := spec.Row{From: name(from), To: spec.HostAt(name(to), 8080), Proto: []string{"tcp", "udp"}[(from+to)%2],
				Want: denied}
			if from%isolated == to%isolated {
				row.Want, row.Servers = spec.Reply, []string{name(to)}
			}
			rows = append(rows, row)
		}
	}
	return rows
}
