// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/internal/guess"
	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/internal/suite/replay"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/scenarios"
	"github.com/viplab/viplab/scenarios/catalogue"
	"github.com/viplab/viplab/suite/spec"
)

func newScenario() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "scenario",
		Short: "Look at the scenarios of the catalogue",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newScenarioShow(), newScenarioList())
	return cmd
}

func newScenarioList() *cobra.Command {
	var f selectFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the scenarios: id, priority, group, and what each is about",
		Example: `  viplab scenario list --group hairpin,udp
  viplab scenario list --focus local --priority P0`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			focus, err := matching("focus", f.focus)
			if err := errors.Join(err, f.check()); err != nil {
				return err
			}
			o := engine.Options{Stack: lab.Dual, Focus: focus}
			if o.Scenarios, err = f.matching(focus); err != nil {
				return err
			}
			o.Skip, _ = f.skips() // checked
			return listScenarios(cmd.OutOrStdout(), o)
		},
	}
	cmd.Flags().StringVar(&f.focus, "focus", "", "only scenarios whose id matches this regular expression")
	cmd.Flags().StringVar(&f.skip, "skip", "", "no scenarios whose id matches this regular expression")
	f.add(cmd)
	return cmd
}

func newScenarioShow() *cobra.Command {
	var nodes []string
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Print a scenario's cluster state as YAML, with what it does and expects as comments",
		Long: `show prints the initial state of a scenario as plain manifests in a namespace of their own, for kubectl
and a real cluster. Comments list its steps and expectations. Pods serve by socat and answer with their name and
the client they saw. The comments begin with the features that the scenario needs, where the behaviour is promised or
tested, where implementations differ on purpose, and the faults of proxiers with which the scenario fails
("viplab conform --fault NAME").`,
		Example: `  viplab scenario show etp-local-source-preserved
  viplab scenario show hairpin-among-many --nodes worker-1,worker-2,worker-3 | kubectl apply -f -`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeScenarios,
		RunE: func(cmd *cobra.Command, args []string) error {
			if most := len(engine.NodeNames()); len(nodes) > most {
				return fmt.Errorf("--nodes: %d names for the lab's %d nodes", len(nodes), most)
			}
			s, err := findScenario(args[0])
			if err != nil {
				return err
			}
			if err := writeAbout(cmd.OutOrStdout(), s); err != nil {
				return err
			}
			return replay.Write(cmd.OutOrStdout(), s, nodes...)
		},
	}
	cmd.Flags().StringSliceVar(&nodes, "nodes", nil, "names of real nodes to use as n1, n2 and n3")
	return cmd
}

// writeAbout writes what the catalogue says of a scenario, as comments.
func writeAbout(w io.Writer, s spec.Scenario) error {
	groups, err := catalogue.Groups()
	if err != nil {
		return err
	}
	row, part := rowOf(groups, s.ID)
	_, authorities := spec.KindOf(s.Needs)
	needs := each(s.Needs, func(f spec.Feature) string { return fmt.Sprintf("%s (%s)", f, f.Kind()) })
	faults := strings.Join(part.Faults, ", ")
	if faults == "" {
		faults = "none: " + part.Immune
	}
	for _, line := range [][2]string{
		{"group", s.Group}, {"needs", cmp.Or(strings.Join(needs, ", "), "nothing of a proxier")},
		{"source", row.Source}, {"authority", strings.Join(authorities, ", ")}, {"behaviour", row.Behaviour},
		{"modes", row.Modes}, {"faults that show it", faults},
	} {
		if text := strings.Join(strings.Fields(line[1]), " "); text != "" {
			if _, err := fmt.Fprintf(w, "# %s: %s\n", line[0], text); err != nil {
				return err
			}
		}
	}
	_, err = fmt.Fprintln(w, "#")
	return err
}

// rowOf returns the row of a scenario and its part of the row. They are zero if no row describes the scenario.
func rowOf(groups []catalogue.Group, id string) (catalogue.Behaviour, catalogue.Part) {
	for _, g := range groups {
		for _, row := range g.Rows {
			if part, ok := row.Parts()[id]; ok {
				return row, part
			}
		}
	}
	return catalogue.Behaviour{}, catalogue.Part{}
}

func findScenario(id string) (spec.Scenario, error) {
	all, err := scenarios.All()
	if err != nil {
		return spec.Scenario{}, err
	}
	i := slices.IndexFunc(all, func(s spec.Scenario) bool { return s.ID == id })
	if i >= 0 {
		return all[i], nil
	}
	meant := ""
	if best := guess.Closest(id, each(all, func(s spec.Scenario) string { return s.ID })); best != "" {
		meant = fmt.Sprintf(", did you mean %q?", best)
	}
	return spec.Scenario{}, fmt.Errorf("there is no scenario %q%s (viplab scenario list shows their names)", id, meant)
}

// completeScenarios completes a scenario's id in the shell.
func completeScenarios(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	all, err := scenarios.All()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ids := each(all, func(s spec.Scenario) cobra.Completion { return s.ID })
	return ids, cobra.ShellCompDirectiveNoFileComp
}
