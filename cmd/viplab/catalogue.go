// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/scenarios"
)

func newCatalogue() *cobra.Command {
	var html, output string
	cmd := &cobra.Command{
		Use:   "catalogue [REPORT...]",
		Short: "Print every behaviour of the catalogue, its scenarios, and their verdicts",
		Long: `catalogue prints the rows of the catalogue with their scenarios. Given reports (report.json, or its
folder), it adds the verdict of each proxier. Where several reports hold the same cell, the worst verdict
counts. -o wide prints below each row what is given, done and expected, where implementations differ on purpose, and
the source that requires it.

Exit code: 0 every row has a scenario; 1 one has none; 2 bad usage.`,
		Example: `  viplab catalogue
  viplab conform --proxier iptables,nftables --out one; viplab catalogue one
  viplab catalogue one two/report.json --html coverage.html
  viplab catalogue -o wide | less`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "" && output != "wide" {
				return fmt.Errorf("--output: %q: want wide", output)
			}
			var reports []report.Report
			for _, path := range args {
				r, err := report.Read(path)
				if err != nil {
					return err
				}
				reports = append(reports, r)
			}
			return showCatalogue(cmd.OutOrStdout(), report.Merge(reports...), html, output == "wide")
		},
	}
	cmd.Flags().StringVar(&html, "html", "", "write the whole as one HTML page into this file, too")
	cmd.Flags().StringVarP(&output, "output", "o", "",
		"wide: with the behaviour and the source of each row (default: a table)")
	complete(cmd, "output", "wide")
	return cmd
}

func showCatalogue(w io.Writer, r report.Report, html string, wide bool) error {
	all, err := scenarios.All()
	if err != nil {
		return err
	}
	page, err := pageOf("viplab: the catalogue", all, func(string) bool { return true })
	if err != nil {
		return err
	}
	missing, err := writeCatalogue(w, r, page, wide)
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

// writeCatalogue prints the table, a wide one with the text of each row below it, and returns the rows without a
// scenario.
func writeCatalogue(w io.Writer, r report.Report, page report.Page, wide bool) (missing []string, err error) {
	red, plain := "", ""
	if colours(w) {
		red, plain = "\x1b[31m", "\x1b[0m"
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.StripEscape)
	fmt.Fprint(t, "row\t\tscenario\tkind")
	for _, p := range r.Proxiers {
		fmt.Fprintf(t, "\t%s", p.Name)
	}
	rows, tested := 0, 0
	for _, g := range page.Groups {
		for _, row := range g.Rows {
			rows++
			switch {
			case len(row.Scenarios) > 0:
			case row.Test != "":
				tested++
				test := strings.Replace(row.Test, " ", " -run ", 1)
				fmt.Fprintf(t, "\n%s\t%s\tgo test ./%s", row.ID, row.Priority, test)
			default:
				missing = append(missing, row.ID)
				fmt.Fprintf(t, "\n\xff%s\xff%s\t%s\tNO SCENARIO\xff%s\xff", red, row.ID, row.Priority, plain)
			}
			for _, s := range row.Scenarios {
				fmt.Fprintf(t, "\n%s\t%s\t%s\t%s%s", row.ID, row.Priority, s.ID, s.Kind, cells(r, s.ID))
			}
			if wide { // escaped, since it is no cell of the table
				fmt.Fprintf(t, "\xff%s\xff", about(row))
			}
		}
	}
	fmt.Fprintf(t, "\n\n%d rows, %d with a scenario", rows, rows-tested-len(missing))
	if tested > 0 {
		fmt.Fprintf(t, ", %d with a test of the code alone", tested)
	}
	fmt.Fprintln(t)
	return missing, t.Flush()
}

// about returns what the catalogue says of a row, in indented lines, each after a line break.
func about(row report.PageRow) string {
	var authorities []string
	for _, s := range row.Scenarios {
		for _, a := range s.Authorities {
			if !slices.Contains(authorities, a) {
				authorities = append(authorities, a)
			}
		}
	}
	var b strings.Builder
	for _, part := range [][2]string{
		{"behaviour", row.Behaviour}, {"modes", row.Modes}, {"source", row.Source},
		{"authority", strings.Join(authorities, ", ")},
	} {
		if part[1] == "" {
			continue
		}
		column := aboutWidth
		for _, word := range strings.Fields(part[0] + ": " + part[1]) {
			if column += 1 + utf8.RuneCountInString(word); column > aboutWidth {
				column = len(aboutIndent) + utf8.RuneCountInString(word)
				b.WriteString("\n" + aboutIndent + word)
				continue
			}
			b.WriteString(" " + word)
		}
	}
	return b.String()
}

// aboutIndent begins each line about a row; aboutWidth is how many columns a line may have.
const (
	aboutIndent = "    "
	aboutWidth  = 100
)

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
