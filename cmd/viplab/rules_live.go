// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/internal/lab/ruleset"
	"github.com/viplab/viplab/internal/live"
	"github.com/viplab/viplab/internal/live/registry"
	"github.com/viplab/viplab/lab"
)

// liveRules choose rules of a running lab and how to print them.
type liveRules struct {
	service, other, output string
	ip                     bool // --ip limits the families
}

func (f *liveRules) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.service, "service", "", "only what concerns this Service, [NAMESPACE/]NAME")
	flags.StringVar(&f.other, "diff", "", "print what differs from this node, or from a file of \"rules -o json\"")
	flags.StringVarP(&f.output, "output", "o", "text", "text or json")
	complete(cmd, "output", "text", "json")
}

// runLive prints the rules of a node of a running lab.
func (f *rulesFlags) runLive(cmd *cobra.Command, l registry.Folder, node string) error {
	if f.running.output != "text" && f.running.output != "json" {
		return fmt.Errorf("--output: want text or json, not %q", f.running.output)
	}
	stack, err := lab.ParseStack(f.cluster.ip)
	if err != nil {
		return inFlag("ip", err)
	}
	rules, err := f.read(cmd.Context(), l, node)
	if err != nil {
		return err
	}
	if f.running.ip {
		rules.Families = nil
		for _, family := range stack.Families() {
			rules.Families = append(rules.Families, map[lab.Family]string{lab.V4: ruleset.IP, lab.V6: ruleset.IP6}[family])
		}
	}
	out := cmd.OutOrStdout()
	if f.running.other != "" {
		return f.diff(cmd, l, rules)
	}
	if f.running.output == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(rules)
	}
	fmt.Fprintf(out, "# %s\n\n", title(rules))
	return rules.Print(out, rules.Families...)
}

// read asks the lab for the rules of a node.
func (f *rulesFlags) read(ctx context.Context, l registry.Folder, node string) (*live.NodeRules, error) {
	var rules live.NodeRules
	args := live.RulesArgs{Node: node, Service: f.running.service, Namespace: f.of.namespace}
	return &rules, ask(ctx, l, live.Rules, args, &rules)
}

// title says whose rules these are.
func title(r *live.NodeRules) string {
	text := fmt.Sprintf("%s of lab %s, proxier %s", r.Node, r.Lab, r.Proxier)
	if r.Enforcer != "" {
		text += ", enforcer " + r.Enforcer
	}
	if r.Service != "" {
		text += ", what concerns Service " + r.Service
	}
	return text
}

// diff prints what differs from another node, or from a file. It fails with exit code 1 if something does.
func (f *rulesFlags) diff(cmd *cobra.Command, l registry.Folder, now *live.NodeRules) error {
	old, err := f.otherRules(cmd, l)
	if err != nil {
		return inFlag("diff", err)
	}
	var text strings.Builder
	found, err := ruleset.Diff(&text, old.Ruleset, now.Ruleset, old.Node == now.Node && old.Lab == now.Lab)
	if err != nil || !found {
		return err
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "--- %s, %s\n+++ %s, %s\n", title(old), old.At.Format(time.TimeOnly), title(now),
		now.At.Format(time.TimeOnly))
	if _, err := io.WriteString(out, text.String()); err != nil {
		return err
	}
	return exitCode(1)
}

// otherRules returns the rules to compare with.
func (f *rulesFlags) otherRules(cmd *cobra.Command, l registry.Folder) (*live.NodeRules, error) {
	if !strings.ContainsAny(f.running.other, "./") && f.running.other != "-" {
		return f.read(cmd.Context(), l, f.running.other)
	}
	text, err := readFile(f.running.other, cmd.InOrStdin())
	if err != nil {
		return nil, err
	}
	var rules live.NodeRules
	if err := json.Unmarshal(text, &rules); err != nil || rules.Ruleset == nil {
		return nil, fmt.Errorf("%s is not what \"viplab rules -o json\" writes: %v", f.running.other, err)
	}
	if same := []string{"", f.running.service, f.of.namespace + "/" + f.running.service}; !slices.Contains(same,
		rules.Service) {
		return nil, fmt.Errorf("%s has only what concerns Service %s: compare with --service %s", f.running.other,
			rules.Service, rules.Service)
	}
	return &rules, nil
}
