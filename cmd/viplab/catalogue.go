// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/scenarios"
)

func newCatalogue() *cobra.Command {
	var html string
	cmd := &cobra.Command{
		Use:   "catalogue [REPORT...]",
		Short: "Print every behaviour of the catalogue, its scenarios, and their verdicts",
		Long: `catalogue prints the rows of the catalogue with their scenarios. Given reports (report.json, or its
folder), it adds the verdict of each proxier. Where several reports hold the same cell, the worst verdict
counts.

Exit code: 0 every row has a scenario; 1 one has none; 2 bad usage.`,
		Example: `  viplab catalogue
  viplab conform --proxier iptables,nftables --out one; viplab catalogue one
  viplab catalogue one two/report.json --html coverage.html`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var reports []report.Report
			for _, path := range args {
				r, err := report.Read(path)
				if err != nil {
					return err
				}
				reports = append(reports, r)
			}
			return showCatalogue(cmd.OutOrStdout(), report.Merge(reports...), html)
		},
	}
	cmd.Flags().StringVar(&html, "html", "", "write the whole as one HTML page into this file, too")
	return cmd
}

func showCatalogue(w io.Writer, r report.Report, html string) error {
	all, err := scenarios.All()
	if err != nil {
		return err
	}
	page, err := pageOf("viplab: the catalogue", all, func(string) bool { return true })
	if err != nil {
		return err
	}
	missing, err := writeCatalogue(w, r, page)
	if err != nil {
		return err
	}
	if html != "" {
		if err := r.WritePageFile(html, page); err != nil {
			return err
		}
		fmt.Fprintf(w, "\npage: %s\n", html)
	}
	if len(missing) == 0 {
		return nil
	}
	fmt.Fprintf(w, "\n%d rows have no scenario: %s\n", len(missing), strings.Join(missing, ", "))
	return exitCode(1)
}

// writeCatalogue prints the table and returns the rows without a scenario.
func writeCatalogue(w io.Writer, r report.Report, page report.Page) (missing []string, err error) {
	red, plain := "", ""
	if colours(w) {
		red, plain = "\x1b[31m", "\x1b[0m"
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.StripEscape)
	fmt.Fprint(t, "row\t\tscenario\tkind")
	for _, p := range r.Proxiers {
		fmt.Fprintf(t, "\t%s", p.Name)
	}
	fmt.Fprintln(t)
	rows, tested := 0, 0
	for _, g := range page.Groups {
		for _, row := range g.Rows {
			rows++
			switch {
			case len(row.Scenarios) > 0:
			case row.Test != "":
				tested++
				test := strings.Replace(row.Test, " ", " -run ", 1)
				fmt.Fprintf(t, "%s\t%s\tgo test ./%s\n", row.ID, row.Priority, test)
			default:
				missing = append(missing, row.ID)
				fmt.Fprintf(t, "\xff%s\xff%s\t%s\tNO SCENARIO\xff%s\xff\n", red, row.ID, row.Priority, plain)
			}
			for _, s := range row.Scenarios {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s%s\n", row.ID, row.Priority, s.ID, s.Kind, cells(r, s.ID))
			}
		}
	}
	fmt.Fprintf(t, "\n%d rows, %d with a scenario", rows, rows-tested-len(missing))
	if tested > 0 {
		fmt.Fprintf(t, ", %d with a test of the code alone", tested)
	}
	fmt.Fprintln(t)
	return missing, t.Flush()
}

// cells returns the verdicts of a scenario, or the causes of its skips, one for each proxier of the report.
func cells(r report.Report, scenario string) string {
	var b strings.Builder
	for _, p := range r.Proxiers {
		b.WriteByte('\t')
		for _, x := range r.Results {
			if x.Scenario == scenario && x.Proxier == p.Name {
				b.WriteString(cmp.Or(string(x.Cause), string(x.Verdict)))
			}
		}
	}
	return b.String()
}
