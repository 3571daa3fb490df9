// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/scenarios"
)

func newMerge() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "merge REPORT...",
		Short: "Make one report of those of shards, or of runs on several proxiers",
		Long: `merge reads reports (report.json, or its folder) of the parts of a run: of "viplab conform --shard", or of
several proxiers. It prints and writes what one run of the whole would: report.json, report.html, junit.xml and
the files of failures.

The parts must be of one version of viplab and of each proxier, from clusters of one kind, and without a scenario
that two of them ran on the same proxier. If shards are missing, merge writes the report of the others, names the
missing ones, and exits with 2.

Exit code: that of one run of the whole: 0 all that ran passed or failed as known; 1 a failure; 2 the harness
broke, nothing ran, a part is missing, or the parts do not belong together.`,
		Example: `  viplab conform --shard 1/2 --out one; viplab conform --shard 2/2 --out two
  viplab merge one two --out all`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return mergeReports(cmd.OutOrStdout(), args, out)
		},
	}
	cmd.Flags().StringVar(&out, "out", "viplab-out", "folder for the merged report and the files of failures")
	return cmd
}

func mergeReports(stdout io.Writer, paths []string, out string) error {
	var parts []report.Part
	for _, path := range paths {
		r, err := report.Read(path)
		if err != nil {
			return err
		}
		parts = append(parts, report.Part{Path: path, Report: r})
	}
	whole, err := report.Join(parts...)
	missing := (*report.MissingError)(nil)
	if err != nil && !errors.As(err, &missing) {
		return err
	}
	whole.Command = commandLine()
	if out, err = filepath.Abs(out); err != nil {
		return err
	}
	unlock, err := lockOut(out)
	if err != nil {
		return err
	}
	defer unlock()
	for _, p := range parts {
		if err := copyFiles(p, out); err != nil {
			return err
		}
	}
	all, err := scenarios.All()
	if err != nil {
		return err
	}
	style := report.Style{Colour: colours(stdout), Out: out}
	if err := whole.WriteFailures(stdout, style); err != nil {
		return err
	}
	if err := printReport(whole, all, out, stdout, style, ""); err != nil {
		return err
	}
	if missing != nil {
		return fmt.Errorf("the report is not complete: %w", missing)
	}
	return exitWith(whole.ExitCode())
}

// copyFiles copies the files of failures from the folder of a report. A report may be without them.
func copyFiles(p report.Part, out string) error {
	from := p.Path
	if info, err := os.Stat(from); err != nil || !info.IsDir() {
		from = filepath.Dir(from)
	}
	for _, x := range p.Results {
		for _, name := range x.Files {
			if !filepath.IsLocal(name) {
				return fmt.Errorf("%s: the report names a file outside of its folder: %s", p.Path, name)
			}
			data, err := os.ReadFile(filepath.Join(from, name))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = report.WriteFile(filepath.Join(out, name), data)
			}
			if err != nil {
				return fmt.Errorf("copy the files of failures: %w", err)
			}
		}
	}
	return nil
}

// addOthers adds rows for results that are not of the catalogue: of network policies, of Kubernetes' own tests.
func addOthers(page *report.Page, results []report.Result) {
	shown := map[string]bool{}
	for _, g := range page.Groups {
		for _, r := range g.Rows {
			for _, s := range r.Scenarios {
				shown[s.ID] = true
			}
		}
	}
	for _, x := range results {
		if shown[x.Scenario] {
			continue
		}
		shown[x.Scenario] = true
		i := slices.IndexFunc(page.Groups, func(g report.PageGroup) bool { return g.Name == x.Group })
		if i < 0 {
			i = len(page.Groups)
			page.Groups = append(page.Groups, report.PageGroup{Name: x.Group, Title: x.Group})
		}
		row := pageCase(x.Scenario, x.Priority, x.Why, x.Why, "")
		page.Groups[i].Rows = append(page.Groups[i].Rows, row)
	}
}
