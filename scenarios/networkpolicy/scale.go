// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// scale returns the scenarios with many objects. They need their own clusters, so that other scenarios do not wait for
// these changes.
func scale() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "np-many-pods", Cluster: &spec.ClusterConfig{}, Needs: enforced,
			Given: crowd(),
			Steps: []spec.Step{{Rows: crowdRows()}},
		},
		{
			ID: "np-hundred-pods", Cluster: &spec.ClusterConfig{}, Needs: enforced,
			Given: hundred(),
			Steps: []spec.Step{{Rows: hundredRows()}},
		},
		{
			ID: "np-nothing-piles-up", Cluster: &spec.ClusterConfig{}, Needs: enforced,
			Given: four(policy("stays", pod("a1"), ingress(allow(pods(pod("b2")))))),
			Steps: []spec.Step{{Check: thousandCycles}},
		},
		{
			ID: "np-many-policies", Cluster: &spec.ClusterConfig{}, Needs: enforced,
			Given: append(four(), manyPolicies(300)...),
			Steps: []spec.Step{
				{Name: "three hundred", Rows: amongMany(spec.Row{Want: denied})},
				{Name: "one changes", Do: do(edit("p150", func(s *networkingv1.NetworkPolicySpec) {
					s.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{pods(pod("c2"))}}}
				})), Rows: amongMany(spec.Row{Servers: []string{"a1"}})},
			},
		},
		{
			ID: "np-many-blocks", Cluster: &spec.ClusterConfig{}, Needs: enforced,
			Given: four(policy("p", pod("b1"), ingress(allow(pods(pod("c2")))))),
			Steps: []spec.Step{{Do: do(amongManyBlocks("a1", "b2")), Rows: slices.Concat(open("a1", "b2"),
				shut("a1", "b1", "c2"), open("b1", "c2"))}},
		},
	}
}

// colours are the groups of a crowd: red may ask green, no other may ask green or blue, and all may ask red.
var colours = []string{"red", "green", "blue"}

const crowdSize = 27

// member is a pod of the crowd: its name, its node and its group. On each node are nine, three of each group.
func member(i int) (name, node, colour string) {
	colour = colours[i/3%3]
	return fmt.Sprintf("%s-%d", colour, i), fmt.Sprintf("n%d", i%3+1), colour
}

func crowd() []store.Object {
	all := []store.Object{
		policy("green", labels("app", "green"), ingress(allow(pods(labels("app", "red"))))),
		policy("blue", labels("app", "blue"), ingress()),
	}
	for i := range crowdSize {
		name, node, colour := member(i)
		all = append(all, echo(name, node, App(colour)))
	}
	return all
}

// crowdRows are rows of every pair, one half of them over TCP and the other over UDP.
func crowdRows() []spec.Row {
	var rows []spec.Row
	for i := range crowdSize {
		from, _, asks := member(i)
		for j := range crowdSize {
			to, _, asked := member(j)
			if i == j {
				continue
			}
			row := spec.Row{From: from, To: spec.HostAt(to, 8080), Proto: []string{"tcp", "udp"}[(i+j)%2], Want: denied}
			if asked == "red" || asked == "green" && asks == "red" {
				row.Want, row.Servers = spec.Reply, []string{to}
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// thousandCycles applies and deletes fifty times twenty policies, each of a name and with a block of its own.
func thousandCycles(ctx context.Context, w spec.World) error {
	const rounds, each = 50, 20
	before := holdings(ctx, w, "n1")
	for i := range rounds {
		var all []store.Object
		for j := range each {
			n := i*each + j
			all = append(all, policy(fmt.Sprintf("p%d", n), pod("a1"),
				ingress(allow(block(fmt.Sprintf("198.18.%d.%d/32", n/250, n%250)), block(fmt.Sprintf("2001:db8::%x/128", n))))))
		}
		spec.MustDo(w.Apply(all...))
		spec.TryDo(w.Settle(ctx))
		if i == 0 && holdings(ctx, w, "n1") == before {
			return fmt.Errorf("with %d policies more there is nothing more on n1", each)
		}
		spec.MustDo(w.Store().Do(func(tx *store.Tx) (err error) {
			for _, o := range all {
				err = errors.Join(err, tx.Delete(store.KindNetworkPolicy, w.Namespace(), o.GetName()))
			}
			return err
		}))
		spec.TryDo(w.Settle(ctx))
	}
	// The kernel may free unused objects a little later, and an enforcer may delete them with its next change.
	spec.TryDo(Eventually(ctx, func(ctx context.Context) error {
		for _, change := range do(Apply(toldBy("last", "")), Delete("NetworkPolicy", "last")) {
			spec.TryDo(change.Run(ctx, w))
			spec.TryDo(w.Settle(ctx))
		}
		if after := holdings(ctx, w, "n1"); after != before {
			return fmt.Errorf("n1 holds after a thousand policies\n%s\nIt held before\n%s", after, before)
		}
		return nil
	}))
	return w.Expect(ctx, append(open("a1", "b2"), shut("a1", "c2")...)...)
}

// holdings are the names of everything that a firewall holds on a node: tables, chains, sets and maps, and how many
// rules and elements.
func holdings(ctx context.Context, w spec.World, node string) string {
	ruleset := spec.Must(w.Run(ctx, node, "nft", "list", "ruleset"))
	setNames := strings.Fields(spec.Must(w.Run(ctx, node, "ipset", "list", "-n")))
	var names []string
	rules := 0
	for line := range strings.Lines(ruleset) {
		line = strings.TrimSpace(line)
		if kind, _, _ := strings.Cut(line, " "); slices.Contains([]string{"table", "chain", "set", "map"}, kind) {
			names = append(names, line)
		} else {
			rules++
		}
	}
	slices.Sort(names)
	slices.Sort(setNames)
	return fmt.Sprintf("%s\nsets %v\n%d other lines", strings.Join(names, "\n"), setNames, rules)
}

// manyPolicies are policies for a1 with a block each, of which the first lets b1 in on another port, and the last b2.
func manyPolicies(n int) []store.Object {
	var all []store.Object
	for i := range n {
		r := allow(block(fmt.Sprintf("198.18.%d.0/24", i%250)))
		switch i {
		case 0:
			r = allow(pods(pod("b1"))).on("TCP", 8081)
		case n - 1:
			r = allow(pods(pod("b2")))
		}
		all = append(all, policy(fmt.Sprintf("p%03d", i), pod("a1"), ingress(r)))
	}
	return all
}

// amongMany are rows of who may come in by one of manyPolicies, and a row of c2.
func amongMany(c2 spec.Row) []spec.Row {
	c2.From, c2.To = "c2", spec.HostAt("a1", 8080)
	return []spec.Row{
		{From: "b2", To: spec.HostAt("a1", 8080), Servers: []string{"a1"}},
		{From: "b1", To: spec.HostAt("a1", 8081), Servers: []string{"a1"}},
		c2,
		{From: "b1", To: spec.HostAt("a1", 8080), Want: denied},
	}
}

// amongManyBlocks lets a host come to a pod, by its addresses among ten thousand others in a rule.
func amongManyBlocks(to, from string) spec.Action {
	return applyBlocks("blocks", pod(to), ingress, func(w spec.World) []netip.Addr {
		all := addrsOf(w, []string{from})
		for i := range 5000 {
			all = append(all, netip.AddrFrom4([4]byte{198, 18, byte(i / 250), byte(i % 250)}),
				netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 14: byte(i / 256), 15: byte(i)}))
		}
		return all
	})
}

// neighbours are a hundred pods p0 to p99, of which each lets the next one in.
const neighbours = 100

func neighbour(i int) string { return fmt.Sprintf("p%d", i%neighbours) }

func hundred() []store.Object {
	var all []store.Object
	for i := range neighbours {
		all = append(all, echo(neighbour(i), fmt.Sprintf("n%d", i%3+1)),
			policy(neighbour(i), pod(neighbour(i)), ingress(allow(pods(pod(neighbour(i+1)))))))
	}
	return all
}

// hundredRows are rows from everybody to every tenth.
func hundredRows() []spec.Row {
	var rows []spec.Row
	for to := 0; to < neighbours; to += 10 {
		for from := range neighbours {
			row := spec.Row{From: neighbour(from), To: spec.HostAt(neighbour(to), 8080), Proto: "udp", Want: denied}
			if from == to+1 {
				row.Want, row.Servers = spec.Reply, []string{neighbour(to)}
			}
			if from != to {
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// latencies are the scenarios of how long a policy takes to come into effect.
func latencies() []spec.Scenario {
	return []spec.Scenario{{
		ID: "np-programming-latency", Cluster: &spec.ClusterConfig{}, Needs: enforced,
		Given: four(),
		Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
			for _, kind := range []struct {
				what   string
				rounds []round
			}{
				{"a policy that denies", []round{{Apply(policy("p", pod("a1"), ingress(allow(pods(labels("new", "1")))))),
					shut("a1", "b2")}, {Delete("NetworkPolicy", "p"), open("a1", "b2")}}},
				{"a label that allows", []round{
					{Apply(policy("p", pod("a1"), ingress(allow(pods(labels("new", "1")))))), shut("a1", "b2")},
					{label("b2", "new", "1"), open("a1", "b2")}, {label("b2", "new", ""), shut("a1", "b2")},
				}},
				{"a new pod that is allowed", []round{{fresh("d2"), open("a1", "d2")}, {Delete("Pod", "d2"), open("b1", "b2")}}},
			} {
				took := latency(ctx, w, kind.what, kind.rounds)
				w.Note(fmt.Sprintf("%s is obeyed within %v, at most %v (%d changes)", kind.what,
					took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond), len(took)))
			}
			return nil
		}}},
	}}
}

// round is a change, and rows that hold once it is in effect.
type round struct {
	change spec.Action
	rows   []spec.Row
}

// fresh is an action that starts a pod that rules for new ones allow, and returns when it has its address.
func fresh(name string) spec.Action {
	return spec.Action{Name: "start " + name, Run: func(ctx context.Context, w spec.World) error {
		if err := w.Apply(echo(name, "n2", Labelled("new", "1"))); err != nil {
			return err
		}
		return Eventually(ctx, func(context.Context) error {
			_, err := w.Host(name)
			return err
		})
	}}
}

// latency goes through the rounds ten times, and returns how long they took, the shortest first.
func latency(ctx context.Context, w spec.World, what string, rounds []round) []time.Duration {
	var took []time.Duration
	for range 10 {
		for _, r := range rounds {
			RunActions(ctx, w, r.change)
			began := time.Now()
			if err := Eventually(ctx, func(ctx context.Context) error { return asWanted(ctx, w, r.rows) }); err != nil {
				spec.TryDo(fmt.Errorf("%s: %w", what, err))
			}
			took = append(took, time.Since(began))
			spec.TryDo(w.Settle(ctx))
		}
	}
	slices.Sort(took)
	return took
}
