// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/viplab/viplab/internal/lab/ruleset"
)

// However many chains a chain leads to, a trace lists those that the packet has met, three others, and how many more
// there are.
func TestChainsOfMany(t *testing.T) {
	for _, c := range []struct {
		others int
		listed []string
		more   int
	}{
		{0, []string{"taken"}, 0},
		{2, []string{"other-0", "taken", "other-1"}, 0},
		{4, []string{"other-0", "other-1", "taken", "other-2", "other-3"}, 0},
		{10000, []string{"other-0", "other-1", "other-2", "taken"}, 9997},
	} {
		first := &ruleset.Chain{Name: "first", Hook: "prerouting"}
		table := &ruleset.Table{Backend: ruleset.NFTables, Family: "ip", Name: "nat", Chains: []*ruleset.Chain{first}}
		for i := range c.others + 1 {
			name := fmt.Sprintf("other-%d", i)
			if i == c.others/2 {
				name = "taken"
			} else if i > c.others/2 {
				name = fmt.Sprintf("other-%d", i-1)
			}
			first.Rules = append(first.Rules, &ruleset.Rule{Jumps: []string{name}})
			table.Chains = append(table.Chains, &ruleset.Chain{Name: name, Rules: []*ruleset.Rule{{Jumps: []string{"first"}}}})
		}
		step := Step{Place: "n1", Backend: "nftables", Family: "ip", Table: "nat", Chain: "first", Verdict: "goto taken"}
		chains := chainsOf(table, chainName{"n1", "nftables", "ip", "nat", ""}, met([]*Walk{{Steps: []Step{step}}}))
		var listed []string
		for _, chain := range chains[1:] {
			listed = append(listed, chain.Name)
			if chain.Met != (chain.Name == "taken") || chain.Place != "n1" || chain.Rules != 1 {
				t.Errorf("%d others: %+v", c.others, chain)
			}
		}
		got := chains[0]
		if !reflect.DeepEqual(listed, c.listed) || !reflect.DeepEqual(got.Targets, c.listed) || got.Others != c.more ||
			got.Hook != "prerouting" || !got.Met {
			t.Errorf("%d others: %+v, and %q", c.others, got, listed)
		}
	}
}
