// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/internal/live"
	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/proxiers"
	"github.com/viplab/viplab/suite/spec"
)

type rulesFlags struct {
	proxier  string
	cluster  clusterFlags
	files    []string
	scenario string
	lab      labFlag
	raw      bool
}

func newRules() *cobra.Command {
	var f rulesFlags
	cmd := &cobra.Command{
		Use:   "rules NODE [-f FILE... | --scenario ID]",
		Short: "Print what a proxier programs on a node, of a running lab or for given manifests, annotated",
		Long: `rules prints what the proxier and the enforcer of a running lab have programmed on a node. With --raw it prints
all rulesets of the node with their counters; it does so for programs that viplab does not know, too.

With manifests or a scenario, rules builds a cluster of the nodes n1, n2 and n3, places the proxier on each, applies
the manifests or the initial state of the scenario, and prints what the proxier then programs on one node: which
Service, which port, and what for. Nothing is left behind.`,
		Example: `  viplab rules n1 --raw
  viplab rules n1 -f deployment.yaml -f service.yaml
  viplab rules n3 --scenario etp-local-source-preserved --proxier iptables-legacy --ip 4
  kubectl get svc,endpointslices -o yaml | viplab rules n1 -f -`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(engine.NodeNames(), cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(f.files) == 0 && f.scenario == "" {
				l, err := f.lab.find()
				if err != nil {
					return fmt.Errorf("without -f and --scenario, of a running lab: %w", err)
				}
				return ask(cmd.Context(), l, live.Rules, live.RulesArgs{Node: args[0], Raw: f.raw}, nil)
			}
			return f.run(cmd.Context(), args[0], cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&f.proxier, "proxier", "iptables", "built-in proxier: "+strings.Join(proxiers.Names(), ", "))
	f.cluster.add(cmd)
	cmd.Flags().StringSliceVarP(&f.files, "filename", "f", nil,
		"manifest to apply, YAML or JSON; - is the standard input")
	cmd.Flags().StringVar(&f.scenario, "scenario", "",
		"apply what this scenario begins with (viplab scenario list shows their names)")
	f.lab.add(cmd)
	cmd.Flags().BoolVar(&f.raw, "raw", false, "of a running lab: print all rulesets of the node, with counters")
	complete(cmd, "proxier", proxiers.Names()...)
	_ = cmd.RegisterFlagCompletionFunc("scenario", completeScenarios) // fails for an unknown flag
	return cmd
}

func (f *rulesFlags) run(ctx context.Context, node string, stdin io.Reader, stdout io.Writer) error {
	found, err := proxiers.Find(f.proxier)
	if err != nil {
		err = fmt.Errorf("--proxier: %w", err)
	}
	var o engine.Options
	err = errors.Join(err, f.cluster.set(&o))
	if len(f.files) > 0 && f.scenario != "" {
		err = errors.Join(err, errors.New("want either -f FILE or --scenario ID"))
	}
	if err != nil {
		return err
	}
	if err := sandbox.Enter(); err != nil {
		return err
	}
	objects, own, err := f.scene(stdin)
	if err != nil {
		return err
	}
	return engine.Rules(ctx, o, found[0], own, objects, node, stdout)
}

// scene returns the objects to apply. It may read the standard input, so it must run inside the sandbox: code before
// Enter runs twice.
func (f *rulesFlags) scene(stdin io.Reader) (objects []store.Object, own spec.ClusterConfig, err error) {
	if f.scenario != "" {
		s, err := findScenario(f.scenario)
		if err != nil {
			return nil, own, fmt.Errorf("--scenario: %w", err)
		}
		if s.Cluster != nil {
			own = *s.Cluster
		}
		return engine.Scene(s), own, nil
	}
	var errs []error
	for _, file := range f.files {
		read, err := readManifest(file, stdin)
		objects = append(objects, read...)
		errs = append(errs, err)
	}
	return objects, own, errors.Join(errs...)
}

func readManifest(file string, stdin io.Reader) ([]store.Object, error) {
	text, err := readFile(file, stdin)
	if err != nil {
		return nil, err
	}
	if file == "-" {
		file = "standard input"
	}
	return store.Decode(file, text)
}
