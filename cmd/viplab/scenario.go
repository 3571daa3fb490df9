// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/internal/suite/replay"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/scenarios"
	"github.com/viplab/viplab/suite/spec"
)

func newScenario() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "scenario",
		Short: "Look at the scenarios of the catalogue",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newScenarioShow(), &cobra.Command{
		Use:   "list",
		Short: "List the scenarios: id, priority, and what each is about",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listScenarios(cmd.OutOrStdout(), engine.Options{Stack: lab.Dual})
		},
	})
	return cmd
}

func newScenarioShow() *cobra.Command {
	var nodes []string
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Print a scenario's cluster state as YAML, with what it does and expects as comments",
		Long: `show prints the initial state of a scenario as plain manifests in a namespace of their own, for kubectl
and a real cluster. Comments list its steps and expectations. Pods serve by socat and answer with their name and
the client they saw.`,
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
			return replay.Write(cmd.OutOrStdout(), s, nodes...)
		},
	}
	cmd.Flags().StringSliceVar(&nodes, "nodes", nil, "names of real nodes to use as n1, n2 and n3")
	return cmd
}

func findScenario(id string) (spec.Scenario, error) {
	all, err := scenarios.All()
	if err != nil {
		return spec.Scenario{}, err
	}
	i := slices.IndexFunc(all, func(s spec.Scenario) bool { return s.ID == id })
	if i < 0 {
		return spec.Scenario{}, fmt.Errorf("there is no scenario %q (viplab scenario list shows their names)", id)
	}
	return all[i], nil
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
