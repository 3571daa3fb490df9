// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/internal/suite/site"
	"github.com/viplab/viplab/scenarios"
)

func newSite() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "site REPORT...|DIR",
		Short: "Make a static site of many reports: versions by scenarios over time",
		Long: `site reads reports (report.json, or its folder) and every report.json below other folders, and writes a
static site that a web server can publish, or a browser open from a disk:

  index.html       each proxier with the sums of its newest version, and all reports
  PROXIER.html     versions by scenarios, the newest version first, its regressions above
  compare/         what changed from each version to the next
  reports/DATE/    each report: report.html, report.json, and the files of its failures

Runs on one proxier with the same flags of clusters (--ip, --pods, --overlay, --enforcer, --fault) follow one another
by their dates. The pages load nothing from elsewhere. They show the command lines of the runs.

A page keeps its address when the site is made again with more reports. site overwrites files and removes none.

Exit code: 0 the site is written; 2 bad usage, or a file that is no report.`,
		Example: `  viplab site results/v1.0 results/v1.1/report.json --out public
  viplab site results --out public`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return makeSite(cmd.OutOrStdout(), args, out) },
	}
	cmd.Flags().StringVar(&out, "out", "viplab-site", "folder for the site")
	return cmd
}

func makeSite(stdout io.Writer, paths []string, out string) error {
	files, err := reportsIn(paths, out)
	if err != nil {
		return err
	}
	runs, err := readRuns(files)
	if err != nil {
		return err
	}
	s, err := site.New(runs)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for _, r := range s.Runs {
		if err := copyFiles(report.Part{Path: r.Path, Report: r.Report}, r.Folder(out)); err != nil {
			return err
		}
	}
	if err := s.Write(out); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%d reports: %s\n", len(s.Runs), filepath.Join(out, "index.html"))
	return err
}

// reportsIn returns the report.json files that paths name, and those below folders without one, each once.
func reportsIn(paths []string, out string) (files []string, err error) {
	for _, path := range paths {
		if _, err := os.Stat(filepath.Join(path, reportFile)); err == nil {
			path = filepath.Join(path, reportFile)
		}
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			files = append(files, filepath.Clean(path)) // Read says what is wrong with it
			continue
		}
		found, err := reportsBelow(path, out)
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}

// reportsBelow returns the report.json files below a folder, but for those of the site itself.
func reportsBelow(folder, out string) (files []string, err error) {
	err = filepath.WalkDir(folder, func(at string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && sameFile(at, out):
			return filepath.SkipDir
		case !d.IsDir() && d.Name() == reportFile:
			files = append(files, at)
		}
		return nil
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s: there is no %s in it or below it; viplab conform --out FOLDER writes one",
			folder, reportFile)
	}
	return files, err
}

// reportFile is the name of a report in its folder.
const reportFile = "report.json"

func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// readRuns reads reports, and adds what the catalogue says of their scenarios.
func readRuns(files []string) ([]site.Run, error) {
	var runs []site.Run
	ran := map[string]bool{}
	for _, file := range files {
		r, err := report.Read(file)
		if err != nil {
			return nil, err
		}
		for _, x := range r.Results {
			ran[x.Scenario] = true
		}
		runs = append(runs, site.Run{Path: file, Report: r})
	}
	all, err := scenarios.All()
	if err != nil {
		return nil, err
	}
	page, err := pageOf("viplab: report", all, func(id string) bool { return ran[id] })
	if err != nil {
		return nil, err
	}
	for i := range runs {
		runs[i].Page = page.Only(runs[i].Results)
		addOthers(&runs[i].Page, runs[i].Results)
	}
	return runs, nil
}
