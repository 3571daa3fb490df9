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
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the labs that run",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.check(); err != nil {
				return err
			}
			labs, err := registry.List()
			if err != nil {
				return err
			}
			if output.format == "" {
				return listLabs(cmd.Context(), cmd.OutOrStdout(), labs)
			}
			return encode(cmd.OutOrStdout(), output.format, each(labs, func(l registry.Folder) described {
				return describeLab(cmd.Context(), l)
			}))
		},
	}
	output.add(cmd)
	return cmd
}

// described is a lab as programs read it.
type described struct {
	live.Report
	Name       string `json:"name"`
	Kubeconfig string `json:"kubeconfig"`
	Error      string `json:"error,omitempty"` // why the lab does not describe itself
}

func describeLab(ctx context.Context, l registry.Folder) described {
	d := described{Name: l.Name, Kubeconfig: l.File(registry.Kubeconfig)}
	var err error
	if d.Report, err = reportOf(ctx, l); err != nil {
		d.Error = err.Error()
	}
	return d
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
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Describe a lab: its machines, and whether its programs have converged",
		Long: `status waits until the programs on the nodes have programmed the cluster's present state, and describes
the lab. It ends with exit code 1 if a program could not, or does not within seconds. A script runs it between a change
and the requests that shall see it: an address in the status of a Service says nothing about the nodes.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.check(); err != nil {
				return err
			}
			l, err := of.find()
			if err != nil {
				return err
			}
			late := ask(cmd.Context(), l, live.Settle, live.SettleArgs{}, nil)
			r, err := reportOf(cmd.Context(), l)
			if err != nil {
				return err
			}
			if late != nil && len(r.Failures) == 0 {
				r.Failures = []string{late.Error()}
			}
			if output.format == "" {
				return printStatus(cmd.OutOrStdout(), r, l)
			}
			d := described{Report: r, Name: l.Name, Kubeconfig: l.File(registry.Kubeconfig)}
			if err := encode(cmd.OutOrStdout(), output.format, d); err != nil || len(r.Failures) == 0 {
				return err
			}
			return exitCode(1)
		},
	}
	of.add(cmd)
	output.add(cmd)
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
