// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
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
	of       placeFlags
	running  liveRules
}

func newRules() *cobra.Command {
	var f rulesFlags
	cmd := &cobra.Command{
		Use:   "rules NODE [--service NAME] [--diff NODE|FILE] | NODE (-f FILE... | --scenario ID)",
		Short: "Print all packet rules of a node in the order in which a packet meets them, annotated",
		Long: `rules prints the packet rules of a node of a running lab, whoever has programmed them: iptables of both
back ends, nftables, IP sets, virtual servers of IPVS, and the sockets where packets end. It goes from hook to hook, and
at a hook by priority, which is the number in brackets. A chain that a rule leads to follows below. Before a rule are
its counters, packets and bytes, if it has them. Above a rule is the Service, port, endpoint, pod or machine that it is
about, and what it does.

--service keeps the rules that concern a Service: those that name it or its addresses, the chains that they lead to, and
rules for the packets of all Services.

--diff prints only what differs from the rules of another node, or from a file that "rules -o json" has written before:
"-" is before what only the other has, "+" before what only NODE has. For a file of the same node, it also prints which
rules have counted packets since then. A name with a dot or a slash is a file. Exit code: 0 without differences, 1 with.

With manifests or a scenario, rules builds a cluster of the nodes n1, n2 and n3, places the proxier on each, applies
the manifests or the initial state of the scenario, and prints what the proxier then programs on one node: which
Service, which port, and what for. Nothing is left behind. It skips objects of kinds that it does not know, with a
warning, and places no enforcer: it warns of NetworkPolicies, and says how to see rules for them.`,
		Example: `  viplab rules n1 --service web
  viplab rules n1 --diff n2
  viplab rules n1 -o json > before.json; viplab probe client n1:30080; viplab rules n1 --diff before.json
  viplab rules n1 -o json > iptables.json; viplab switch --proxier nftables; viplab rules n1 --diff iptables.json
  viplab rules n1 -f deployment.yaml -f service.yaml
  viplab rules n3 --scenario etp-local-source-preserved --proxier iptables-legacy --ip 4
  kubectl get svc,endpointslices -o yaml | viplab rules n1 -f -`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.of.lab.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(f.files) == 0 && f.scenario == "" {
				l, err := f.of.lab.find()
				if err != nil {
					return fmt.Errorf("without -f and --scenario, of a running lab: %w", err)
				}
				f.running.ip = cmd.Flag("ip").Changed
				return f.runLive(cmd, l, args[0])
			}
			return f.run(cmd, args[0])
		},
	}
	cmd.Flags().StringVar(&f.proxier, "proxier", "iptables",
		"with -f or --scenario: built-in proxier: "+strings.Join(proxiers.Names(), ", "))
	f.cluster.add(cmd)
	cmd.Flags().StringSliceVarP(&f.files, "filename", "f", nil,
		"manifest to apply, YAML or JSON; - is the standard input")
	cmd.Flags().StringVar(&f.scenario, "scenario", "",
		"apply what this scenario begins with (viplab scenario list shows their names)")
	f.of.add(cmd)
	f.running.add(cmd)
	complete(cmd, "proxier", proxiers.Names()...)
	_ = cmd.RegisterFlagCompletionFunc("scenario", completeScenarios) // fails for an unknown flag
	return cmd
}

func (f *rulesFlags) run(cmd *cobra.Command, node string) error {
	ctx := cmd.Context()
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
	if err := sandbox.Enter(ctx); err != nil {
		return err
	}
	objects, source, own, err := f.scene(cmd)
	if err != nil {
		return err
	}
	up := []string{"viplab", "up", "--proxier", f.proxier, "--enforcer", "policy-nftables", "-f"}
	cure := quoted(append(up, strings.Join(f.files, ",")))
	if f.scenario != "" {
		cure = "viplab scenario show " + f.scenario + " | " + quoted(append(up, "-"))
	}
	warnUnenforced(cmd.ErrOrStderr(), found[0], objects, source,
		"To see rules for them: "+cure+"; viplab rules "+node+"; viplab down")
	return engine.Rules(ctx, o, found[0], own, objects, node, cmd.OutOrStdout())
}

// scene returns the objects to apply, and what has them. It may read the standard input, so it must run inside the
// sandbox: code before Enter runs twice.
func (f *rulesFlags) scene(cmd *cobra.Command) (objects []store.Object, source string, own spec.ClusterConfig,
	err error) {
	if f.scenario != "" {
		s, err := findScenario(f.scenario)
		if err != nil {
			return nil, "", own, fmt.Errorf("--scenario: %w", err)
		}
		if s.Cluster != nil {
			own = *s.Cluster
		}
		return engine.Scene(s), "scenario " + s.ID, own, nil
	}
	manifests, err := readManifests(f.files, cmd.InOrStdin())
	if err != nil {
		return nil, "", own, err
	}
	objects, err = live.Objects(manifests, f.of.namespace, cmd.ErrOrStderr())
	return objects, live.Sources(manifests), own, err
}
