// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/internal/live"
	"github.com/viplab/viplab/internal/live/registry"
)

func newLs() *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List the labs that run",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			labs, err := registry.List()
			if err != nil {
				return err
			}
			return listLabs(cmd.Context(), cmd.OutOrStdout(), labs)
		},
	}
}

// answerLimit is how long "ls" waits for a lab to describe itself.
const answerLimit = 5 * time.Second

func listLabs(ctx context.Context, w io.Writer, labs []registry.Folder) error {
	if len(labs) == 0 {
		_, err := fmt.Fprintln(w, "No lab runs. Start one with \"viplab up\".")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "NAME\tAGE\tNODES\tPROXIER\tENFORCER\tKUBECONFIG")
	for _, l := range labs {
		r, err := reportOf(ctx, l)
		if err != nil {
			fmt.Fprintf(t, "%s\t(does not answer: %v)\n", l.Name, err)
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\n", l.Name, r.Age.Round(time.Second), r.Nodes(), r.Proxier,
			orDash(r.Enforcer), l.File(registry.Kubeconfig))
	}
	return t.Flush()
}

// reportOf asks a lab to describe itself.
func reportOf(ctx context.Context, l registry.Folder) (r live.Report, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	return r, ask(ctx, l, live.Status, nil, &r)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func newStatus() *cobra.Command {
	var of labFlag
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Describe a lab: its machines, and whether its programs have converged",
		Long: `status describes a lab and ends with exit code 1 if a program on a node could not program the cluster's
present state.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := of.find()
			if err != nil {
				return err
			}
			r, err := reportOf(cmd.Context(), l)
			if err != nil {
				return err
			}
			return printStatus(cmd.OutOrStdout(), r, l)
		},
	}
	of.add(cmd)
	return cmd
}

func printStatus(w io.Writer, r live.Report, l registry.Folder) error {
	if err := printLab(w, r, l); err != nil || len(r.Failures) == 0 {
		return err
	}
	fmt.Fprintln(w)
	for _, f := range r.Failures {
		fmt.Fprintln(w, f)
	}
	return exitCode(1)
}

// labVariable names the lab of commands without the flag --lab.
const labVariable = "VIPLAB_LAB"

// labFlag chooses one of the labs that run.
type labFlag struct{ name string }

func (f *labFlag) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.name, "lab", os.Getenv(labVariable),
		"the lab, by its name (default: $"+labVariable+", or the only one that runs)")
	_ = cmd.RegisterFlagCompletionFunc("lab", completeLabs) // fails for an unknown flag
}

func (f *labFlag) find() (registry.Folder, error) {
	l, err := registry.Find(f.name)
	if f.name == "" {
		return l, err
	}
	return l, inFlag("lab", err)
}

// completeLabs offers the names of the labs that run.
func completeLabs(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	labs, _ := registry.List() // what cannot be listed is not offered
	return each(labs, func(l registry.Folder) string { return l.Name }), cobra.ShellCompDirectiveNoFileComp
}
