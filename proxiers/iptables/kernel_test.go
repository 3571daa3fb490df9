// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/viplab/viplab/internal/proxiers/dnat"
	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/proxiers/model"
	"github.com/viplab/viplab/suite/spec"
)

// TestIncrementalEqualsFresh: the kernel accepts all rules, and after any sequence of changes it holds the same rules
// as after a start with the last state.
func TestIncrementalEqualsFresh(t *testing.T) {
	proxiertest.FewerChecks(t, "8")
	for _, b := range backends {
		t.Run(string(b), func(t *testing.T) {
			start(t, b, proxiertest.Node(t, lab.V4, lab.V6)) // skips where it cannot run
			rapid.Check(t, func(rt *rapid.T) {
				in := start(t, b, proxiertest.Node(t, lab.V4, lab.V6))
				s := proxiertest.Random(rt)
				proxiertest.Apply(rt, in, s)
				for range 3 {
					s = proxiertest.Change(rt, s)
					proxiertest.Apply(rt, in, s)
					fresh := start(t, b, proxiertest.Node(t, lab.V4, lab.V6))
					proxiertest.Apply(rt, fresh, s)
					if got, want := kernelRules(rt, in), kernelRules(rt, fresh); !slices.Equal(got, want) {
						rt.Fatalf("step by step\n%s\n\nat once\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
					}
					proxiertest.Stop(rt, fresh)
				}
				proxiertest.Stop(rt, in)
				if left := kernelRules(rt, in); len(left) > 0 {
					rt.Fatalf("left behind after Stop:\n%s", strings.Join(left, "\n"))
				}
			})
		})
	}
}

// TestRestart: a proxier that finds the rules of a former one takes over, deletes what is out of date, and leaves the
// rules of others alone, as does Stop.
func TestRestart(t *testing.T) {
	for _, b := range backends {
		t.Run(string(b), func(t *testing.T) {
			node := proxiertest.Node(t, lab.V4)
			foreign := []*xtables.Transaction{foreignRules(xtables.Filter), foreignRules(xtables.NAT)}
			first := start(t, b, node)
			// Foreign rules that jump to our chain keep it alive, without rules.
			if err := first.families[0].programs.Restore(t.Context(), foreign...); err != nil {
				t.Fatal(err)
			}
			theirs := kernelRules(t, first)
			proxiertest.Apply(t, first, proxiertest.Cluster(120, 2)) // more than a batch

			second := start(t, b, node)
			proxiertest.Apply(t, second, proxiertest.Cluster(3, 2))
			fresh := start(t, b, proxiertest.Node(t, lab.V4))
			if err := fresh.families[0].programs.Restore(t.Context(), foreign...); err != nil {
				t.Fatal(err)
			}
			proxiertest.Apply(t, fresh, proxiertest.Cluster(3, 2))
			if got, want := kernelRules(t, second), kernelRules(t, fresh); !slices.Equal(got, want) {
				t.Errorf("after a restart\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			proxiertest.Stop(t, second)
			if got := kernelRules(t, second); !slices.Equal(got, theirs) {
				t.Errorf("after Stop\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(theirs, "\n"))
			}
		})
	}
}

// TestStopWithForeignJump: rules that jump to a chain of the proxier may come while it runs. Stop leaves them alone.
func TestStopWithForeignJump(t *testing.T) {
	eachBackend(t, func(t *testing.T, b Backend) {
		in := start(t, b, proxiertest.Node(t, lab.V4))
		proxiertest.Apply(t, in, proxiertest.Cluster(3, 2))
		foreign := &xtables.Transaction{Table: xtables.NAT}
		foreign.Write("MINE", []xtables.Rule{xtables.NewRule(xtables.Jump(chainServices))})
		if err := in.families[0].programs.Restore(t.Context(), foreign); err != nil {
			t.Fatal(err)
		}
		proxiertest.Stop(t, in)
		want := []string{"v4 nat :KUBE-SERVICES", "v4 nat :MINE", "v4 nat MINE -j KUBE-SERVICES"}
		if got := kernelRules(t, in); !slices.Equal(got, want) {
			t.Errorf("after Stop\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

func foreignRules(table xtables.TableName) *xtables.Transaction {
	tx := &xtables.Transaction{Table: table}
	tx.Write(chainServices, nil)
	tx.Write("MINE", []xtables.Rule{
		xtables.NewRule(xtables.Comment(`-j KUBE-SERVICES "quoted"`), xtables.Return),
		xtables.NewRule(xtables.Comment("a chain of theirs that needs one of ours"), xtables.Jump(chainServices)),
	})
	tx.Insert("OUTPUT", xtables.NewRule(xtables.Comment("mine"), xtables.Jump("MINE")))
	return tx
}

// TestHealing: the next change restores rules that another program has deleted.
func TestHealing(t *testing.T) {
	for _, b := range backends {
		t.Run(string(b), func(t *testing.T) {
			in := start(t, b, proxiertest.Node(t, lab.V4))
			proxiertest.Apply(t, in, proxiertest.Cluster(2, 2))
			f := in.families[0]
			saved, err := f.programs.Save(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, table := range []xtables.TableName{xtables.NAT, xtables.Filter} {
				if err := f.programs.Restore(t.Context(), owned(b).Removal(table, saved.Of(table))...); err != nil {
					t.Fatal(err)
				}
			}
			proxiertest.Apply(t, in, proxiertest.Cluster(3, 2))
			fresh := start(t, b, proxiertest.Node(t, lab.V4))
			proxiertest.Apply(t, fresh, proxiertest.Cluster(3, 2))
			if got, want := kernelRules(t, in), kernelRules(t, fresh); !slices.Equal(got, want) {
				t.Errorf("healed\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// TestCrowd: with many endpoints, new rules have no comments, and existing rules keep theirs.
func TestCrowd(t *testing.T) {
	const most = dnat.MaxCommentedEndpoints / 5
	few, many := proxiertest.Cluster(most, 5), proxiertest.Cluster(most+1, 5)
	in := start(t, NFT, proxiertest.Node(t, lab.V4))
	proxiertest.Apply(t, in, few)
	first := kernelRules(t, in)
	proxiertest.Apply(t, in, many)
	var plain []string
	for _, r := range slices.DeleteFunc(kernelRules(t, in), sets.New(first...).Has) {
		if strings.Contains(r, " KUBE-SEP-") && strings.Contains(r, " -j ") && !strings.Contains(r, "--comment") {
			plain = append(plain, r)
		}
	}
	if len(plain) != 5+2*5 { // five rules that lead to a chain of two
		t.Errorf("%d rules without a comment were added:\n%s", len(plain), strings.Join(plain, "\n"))
	}
	proxiertest.Apply(t, in, few)
	if got := kernelRules(t, in); !slices.Equal(got, first) {
		t.Errorf("there and back: %d rules, not the %d of before", len(got), len(first))
	}
}

// TestUnchangedWritesNothing: an unchanged snapshot runs no program, and keeps the counters.
func TestUnchangedWritesNothing(t *testing.T) {
	in := start(t, NFT, proxiertest.Node(t, lab.V4))
	s := proxiertest.Cluster(2, 2)
	proxiertest.Apply(t, in, s)
	proxiertest.Again(t, in, s)
}

func TestSysctls(t *testing.T) {
	for _, c := range []struct {
		name   string
		config spec.ProxyConfig
		want   string
	}{
		{"default", spec.ProxyConfig{}, "1"},
		{"off", spec.ProxyConfig{NoLocalhostNodePorts: true}, "0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			node := proxiertest.Node(t, lab.V4, lab.V6)
			node.Config = c.config
			in := start(t, NFT, node)
			if got, err := node.Host.Sysctl(routeLocalnet); got != c.want || err != nil {
				t.Errorf("started: got %q, want %s (%v)", got, c.want, err)
			}
			proxiertest.Stop(t, in)
			if got, err := node.Host.Sysctl(routeLocalnet); got != "0" || err != nil {
				t.Errorf("stopped: got %q, want what it was, 0 (%v)", got, err)
			}
		})
	}
}

// TestLateAddress: an address that the node gets while the proxier runs serves NodePorts, if it is in the ranges.
func TestLateAddress(t *testing.T) {
	for _, b := range backends {
		t.Run(string(b), func(t *testing.T) {
			node := proxiertest.Node(t, lab.V4)
			node.Config.NodePortAddresses = []netip.Prefix{netip.MustParsePrefix("192.168.7.0/24")}
			in := start(t, b, node)
			s := proxiertest.Cluster(1, 1)
			proxiertest.Apply(t, in, s)
			for _, step := range []struct {
				change string
				want   []string
			}{
				{"+192.168.7.11/32", []string{"192.168.7.11/32"}},
				{"+192.168.8.11/32", []string{"192.168.7.11/32"}},
				{"+192.168.7.12/32", []string{"192.168.7.11/32", "192.168.7.12/32"}},
				{"-192.168.7.11/32", []string{"192.168.7.12/32"}},
			} {
				proxiertest.Readdress(t, node, step.change)
				proxiertest.Apply(t, in, s)
				if got := nodePortDestinations(t, in); !slices.Equal(got, step.want) {
					t.Errorf("after a change of %s: NodePorts answer on %q, want %q", step.change, got, step.want)
				}
			}
		})
	}
}

// nodePortDestinations are the addresses for which the last rules of nat KUBE-SERVICES look up NodePorts.
func nodePortDestinations(t *testing.T, in *instance) []string {
	t.Helper()
	saved, err := in.families[0].programs.Save(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rules := saved.Of(xtables.NAT).Chains[chainServices]
	var out []string
	for i, r := range rules {
		if r.Target() != chainNodePorts {
			if len(out) > 0 {
				t.Errorf("rule %d comes after those for NodePorts: %s", i, r)
			}
			continue
		}
		_, rest, _ := strings.Cut(string(r), "-d ")
		to, _, _ := strings.Cut(rest, " ")
		out = append(out, to)
	}
	return out
}

// TestEndpointChangeIsSmall: the change for a removed endpoint does not grow with the number of Services, and touches
// no shared chain.
func TestEndpointChangeIsSmall(t *testing.T) {
	size := func(n int) int {
		b := model.NewBuilder("n1", lab.V4)
		r := &renderer{}
		s := proxiertest.Cluster(n, 3)
		l := &ledger{}
		l.update(b.Build(s), nil, r)
		next := *s
		next.EndpointSlices = slices.Clone(s.EndpointSlices)
		_, next.EndpointSlices[0] = proxiertest.Simple(0, 2, lab.V4)
		script := xtables.Script(l.update(b.Build(&next), nil, r).Transactions(NFT)...)
		if strings.Contains(string(script), chainServices) {
			t.Errorf("a shared chain is written:\n%s", script)
		}
		return len(script)
	}
	if few, many := size(2), size(500); few != many || few == 0 {
		t.Errorf("wrote %d bytes with 2 Services, and %d with 500", few, many)
	}
}

// kernelRules lists the sets of clients and then the rules in the kernel, chain by chain. The rules of shared chains
// are sorted, because the order of Services does not matter, except for the rules for NodePorts at the end. Built-in
// chains without rules are omitted.
func kernelRules(t proxiertest.Failer, in *instance) []string {
	var out []string
	for _, f := range in.families {
		out = append(out, kernelSets(t, in, f)...)
		saved, err := f.programs.Save(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range []xtables.TableName{xtables.Filter, xtables.NAT} {
			chains := saved.Of(table).Chains
			for _, name := range slices.Sorted(maps.Keys(chains)) {
				rules := chains[name]
				if xtables.BuiltIn(name) && len(rules) == 0 {
					continue
				}
				if dispatches(name) {
					end := len(rules)
					for end > 0 && rules[end-1].Target() == chainNodePorts {
						end--
					}
					slices.Sort(rules[:end])
				}
				out = append(out, f.rules.family.String()+" "+string(table)+" :"+name)
				for _, r := range rules {
					out = append(out, f.rules.family.String()+" "+string(table)+" "+name+" "+string(r))
				}
			}
		}
	}
	return out
}

func dispatches(chain string) bool {
	return slices.ContainsFunc(layout(nil), func(c xtables.SharedChain) bool { return c.Name == chain })
}
