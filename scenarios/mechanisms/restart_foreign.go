// SPDX-License-Identifier: Apache-2.0

package mechanisms

import (
	"context"
	"fmt"
	"strings"

	"github.com/viplab/viplab/lab"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

func foreignRules() spec.Scenario {
	return spec.Scenario{
		ID: "rr-foreign-rules-kept", Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
		Needs: []spec.Feature{spec.ClusterIP},
		Given: world(),
		Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
			if err := makeForeign(ctx, w); err != nil {
				return err
			}
			before, err := foreign(ctx, w)
			if err != nil {
				return err
			}
			same := func(after string) error {
				now, err := foreign(ctx, w)
				if err == nil && now != before {
					err = fmt.Errorf("after %s, what others have made on n1 is\n%s\nIt was\n%s", after, now, before)
				}
				return err
			}
			serves := func() error {
				return w.Expect(ctx, spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), By: backends})
			}
			err = restartInTurn(
				func() error { return w.Apply(Service("another", Selecting("web"))) }, serves,
				func() error { return same("a sync") },
				func() error { return w.Life("n1").Start(ctx) }, serves,
				func() error { return same("a restart") },
			)
			if err != nil || !w.Features()[spec.Cleanup] {
				return err
			}
			return restartInTurn(
				func() error { return w.Life("n1").Cleanup(ctx) },
				func() error { return same("the clean-up") },
			)
		}}},
	}
}

// makeForeign makes on n1 what an administrator or another program might have there, none of which stops any packet of
// the scenario: chains that built-in chains lead to, a table of nftables, an IP set in use.
func makeForeign(ctx context.Context, w spec.World) error {
	const discard = "9" // RFC 863; nobody here speaks it
	commands := [][]string{
		{"nft", "add table inet foreign; add chain inet foreign forward { type filter hook forward priority 5; }; " +
			"add rule inet foreign forward tcp dport " + discard + " drop"},
	}
	for _, f := range w.Lab().Stack().Families() {
		set, kind := "foreign4", "inet"
		if f == lab.V6 {
			set, kind = "foreign6", "inet6"
		}
		commands = append(commands, []string{"ipset", "create", set, "hash:ip", "family", kind})
		for _, at := range []struct{ table, chain string }{{"filter", "FORWARD"}, {"nat", "PREROUTING"},
			{"nat", "POSTROUTING"}} {
			own := "FOREIGN-" + at.chain
			for _, words := range []string{
				"-N " + own, "-A " + own + " -p tcp --dport " + discard + " -m set --match-set " + set + " src -j RETURN",
				"-I " + at.chain + " -j " + own,
			} {
				commands = append(commands, append([]string{IPTables(w, f), "-w", "-t", at.table}, strings.Fields(words)...))
			}
		}
	}
	for _, argv := range commands {
		if _, err := w.Run(ctx, "n1", argv...); err != nil {
			return err
		}
	}
	return nil
}

// foreign is what is there of that now.
func foreign(ctx context.Context, w spec.World) (string, error) {
	commands := [][]string{{"nft", "list", "table", "inet", "foreign"}, {"ipset", "list", "-n"}}
	for _, f := range w.Lab().Stack().Families() {
		for _, table := range []string{"filter", "nat"} {
			commands = append(commands, []string{IPTables(w, f), "-w", "-t", table, "-S"})
		}
	}
	var all strings.Builder
	for _, argv := range commands {
		text, err := Shown(ctx, w, "n1", argv...)
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(text) {
			if strings.Contains(line, "FOREIGN-") || strings.HasPrefix(line, "foreign") || argv[0] == "nft" {
				all.WriteString(line)
			}
		}
	}
	return all.String(), nil
}
