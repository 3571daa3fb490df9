// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/internal/suite/report"
)

func newCompare() *cobra.Command {
	var output outputFlag
	var html string
	var slower float64
	cmd := &cobra.Command{
		Use:   "compare OLD NEW",
		Short: "Print what changed from one report to another: regressions first",
		Long: `compare reads two reports (report.json, or its folder) and prints the scenarios whose verdict differs:

  regression     it fails, or is broken, and did not before
  still failing  it failed before, and does so now
  fixed          it failed before, and does no longer
  known now      it passed, and fails now as an expectation foresees (--expect)
  passes now     it failed as an expectation foresaw, and passes now
  new skip       it ran, and is skipped now
  gone           it ran, and is not in the new report
  added          it passes, and did not run before
  slower         it passes both times, and takes at least twice as long (--slower) and a second longer

If each report is of one proxier, these are compared whatever their names are: two releases, two modes.

Exit code: 0 there is no regression; 1 there is one; 2 bad usage, or a file that is no report.`,
		Example: `  viplab compare viplab-old viplab-out
  viplab compare old/report.json new/report.json --html compare.html
  viplab compare old new -o json | jq .counts`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := output.check(); err != nil {
				return err
			}
			if slower <= 1 {
				return fmt.Errorf("--slower: %g: want a factor above 1, for example 2", slower)
			}
			c, err := compareFiles(args[0], args[1], slower)
			if err != nil {
				return err
			}
			if html != "" {
				if err := c.WritePage(html, ""); err != nil {
					return err
				}
			}
			w := cmd.OutOrStdout()
			if output.format != "" {
				err = encode(w, output.format, c)
			} else {
				err = c.Write(w, colours(w))
			}
			if err != nil {
				return err
			}
			return exitWith(c.ExitCode())
		},
	}
	output.add(cmd)
	cmd.Flags().StringVar(&html, "html", "", "write the comparison as an HTML page into this file, too")
	cmd.Flags().Float64Var(&slower, "slower", 2, "how many times as long a scenario takes that counts as slower")
	return cmd
}

func compareFiles(before, after string, slower float64) (report.Comparison, error) {
	old, err := report.Read(before)
	if err != nil {
		return report.Comparison{}, err
	}
	now, err := report.Read(after)
	if err != nil {
		return report.Comparison{}, err
	}
	return report.Compare(old, now, slower), nil
}
