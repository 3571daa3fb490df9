// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/internal/lab/confined"
	"github.com/viplab/viplab/internal/lab/kernel"
	"github.com/viplab/viplab/lab/sandbox"
)

func newDoctor() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor [FEATURE...]",
		Short: "Show what this machine can do, by trying it in namespaces of its own",
		Long: `doctor tries each thing that a lab needs in a throwaway network namespace. It prints what is missing,
which feature needs it, and what to do about it; in a container, a pod of Kubernetes, a node of kind or a job of a CI
system, what to do there. With names of features, it tries only those.

Exit code: 0 if "viplab conform" can judge the built-in iptables proxier here, or if all features of the command line
work, 1 if not.`,
		Example: `  viplab doctor
  viplab doctor ip_vs ipvsadm`,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			names := each(kernel.Probes(), func(p kernel.Probe) string { return string(p.Feature) })
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			probes, err := chosen(args)
			if err != nil {
				return err
			}
			d, write := diagnose(cmd.Context(), probes), diagnosis.writeTable
			d.chosen = len(args) > 0
			if asJSON {
				write = diagnosis.writeJSON
			}
			if err := write(d, cmd.OutOrStdout()); err != nil || d.Ready {
				return err
			}
			return exitCode(1)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the findings as JSON")
	return cmd
}

// chosen returns the probes of the named features, each required, or all probes.
func chosen(features []string) ([]kernel.Probe, error) {
	if len(features) == 0 {
		return kernel.Probes(), nil
	}
	probes, err := kernel.Named(each(features, func(f string) kernel.Feature { return kernel.Feature(f) })...)
	for i := range probes {
		probes[i].Required = true
	}
	return probes, err
}

type diagnosis struct {
	Kernel   string           `json:"kernel"`
	Rootless bool             `json:"rootless"`
	Place    confined.Place   `json:"place,omitempty"` // the container that this is, if it is one
	Ready    bool             `json:"ready"`           // what is required works
	InVM     []string         `json:"in_vm"`           // what needs the virtual machine, because this kernel lacks it
	Findings []kernel.Finding `json:"findings"`
	chosen   bool             // the command line names the features
}

// diagnose enters a sandbox and tries the probes there. If there is no sandbox, it can only look for programs.
func diagnose(ctx context.Context, probes []kernel.Probe) diagnosis {
	home := kernel.Finding{Feature: "sandbox", For: "everything", Required: true, Status: kernel.Has}
	place, rootless := confined.Here(), os.Getuid() != 0
	err := sandbox.Enter(ctx)
	if err == nil {
		rootless = sandbox.Rootless() // in there, everybody is root
	} else {
		home.Status, home.Detail = kernel.Lacks, err.Error()
		if refusal := (*sandbox.UnavailableError)(nil); errors.As(err, &refusal) {
			home.Detail = fmt.Sprintf("%s: %v: %s", refusal.Step, refusal.Err, refusal.Cause)
			home.Cure = refusal.Cure
		}
		probes = kernel.Programs(probes)
	}
	d := diagnosis{
		Kernel: kernelRelease(), Rootless: rootless, Place: place,
		Findings: append([]kernel.Finding{home}, kernel.Examine(ctx, probes)...),
	}
	d.conclude()
	return d
}

func (d *diagnosis) conclude() {
	d.Ready, d.InVM = true, []string{}
	for _, f := range d.Findings {
		if f.Status == kernel.Has {
			continue
		}
		d.Ready = d.Ready && !f.Required
		if f.InVM && !slices.Contains(d.InVM, f.For) {
			d.InVM = append(d.InVM, f.For)
		}
	}
}

func (d diagnosis) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(d)
}

// advice returns the remedies for everything that is missing: one line for all modules, one for all packages, and one
// for each other thing.
func (d diagnosis) advice() []string {
	var modules, packages, lines []string
	for _, f := range d.Findings {
		switch {
		case f.Module != "":
			modules = append(modules, f.Module)
		case f.Package != "":
			packages = append(packages, f.Package)
		case f.Cure != "":
			lines = append(lines, fmt.Sprintf("%s: %s", f.Feature, f.Cure))
		}
	}
	unique := func(s []string) string { return strings.Join(slices.Compact(slices.Sorted(slices.Values(s))), " ") }
	install, load := "sudo apt-get install ", "sudo modprobe -a "
	if d.Place != confined.Machine { // containers have no sudo, and no modules
		install = "apt-get install "
		load = "on the machine, outside of this container: " + load
	}
	if len(packages) > 0 {
		lines = append(lines, install+unique(packages))
	}
	if len(modules) > 0 {
		lines = append(lines, load+unique(modules)+" (or use a kernel that has them: scripts/vm)")
	}
	return lines
}

func (d diagnosis) writeTable(w io.Writer) error {
	user := "as root"
	if d.Rootless {
		user = "without root"
	}
	if d.Place != confined.Machine {
		user += ", in " + string(d.Place)
	}
	fmt.Fprintf(w, "Linux %s, %s\n\n", d.Kernel, user)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "WHAT\tSTATUS\tFOR\tDETAIL")
	for _, f := range d.Findings {
		status := f.Status.String()
		if f.Status != kernel.Has && f.Required {
			status += "!"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", f.Feature, status, f.For, f.Detail)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if advice := d.advice(); len(advice) > 0 {
		fmt.Fprintf(w, "\nWhat to do:\n  %s\n", strings.Join(advice, "\n  "))
	}
	if len(d.InVM) > 0 {
		fmt.Fprintf(w, "\nNot here, but in the virtual machine (scripts/vm): %s.\n", strings.Join(d.InVM, "; "))
	}
	verdict := "The built-in iptables proxier can be judged here: viplab conform"
	switch {
	case d.chosen && d.Ready:
		verdict = "All of it works here"
	case d.chosen:
		verdict = "What is marked ! is missing"
	case !d.Ready:
		verdict = "The built-in iptables proxier cannot be judged here: what is marked ! is missing"
	}
	_, err := fmt.Fprintf(w, "\n%s.\n", verdict)
	return err
}
