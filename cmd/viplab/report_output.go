// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/suite/spec"
)

// style returns how the report of a run is printed.
func (f *conformFlags) style(stdout io.Writer, o engine.Options) report.Style {
	return report.Style{Colour: colours(stdout), All: f.matrix, Out: o.Out}
}

// remark returns what the sums do not say about a run: that it was interrupted, that nothing ran, and how a
// command of --exec claims features. It is empty if there is nothing to say.
func (f *conformFlags) remark(ctx context.Context, r report.Report) (text string) {
	judged, all := 0, len(r.Results)
	for _, p := range r.Proxiers {
		judged += p.Passed + p.Known + p.Failed
		all -= p.Skipped
	}
	switch {
	case ctx.Err() != nil:
		text += interrupted(judged, all, "scenarios", "count as broken")
	case all == 0 && r.Suite.Shard == "":
		text += "no scenario ran: nothing is proved\n"
	}
	if r.Suite.Shard != "" && len(r.Results) == 0 {
		text += fmt.Sprintf("shard %s is empty: there are %d scenarios\n", r.Suite.Shard, r.Suite.Whole)
	}
	for _, p := range r.Proxiers {
		if p.Name == f.name() && f.proxiers.features == "" && p.NotOffered+p.NotImplemented > 0 {
			const hint = "%s has not claimed some features: --features +NAME claims one (viplab features)\n"
			text += fmt.Sprintf(hint, p.Name)
		}
	}
	return text
}

// interrupted returns the line of an interrupted run: how many were judged, and how the others count.
func interrupted(judged, all int, what, others string) string {
	return fmt.Sprintf("interrupted: %d of %d %s were judged; the others %s\n", judged, all, what, others)
}

// noneFailed returns the line of generated cases that were interrupted before one failed.
func noneFailed(judged, all int) string {
	return fmt.Sprintf("interrupted: %d of %d cases were judged, and none of them failed", judged, all)
}

// leftOut returns the line of an interrupted run that leaves out what it has not judged, or "" if it has judged all.
func leftOut(judged, all int, what string) string {
	if judged == all {
		return ""
	}
	return interrupted(judged, all, what, "were not run")
}

// name returns the name of the command of --exec, or "" without.
func (f *conformFlags) name() string {
	if !f.proxiers.given("exec") {
		return ""
	}
	return f.proxiers.name
}

// printReport prints the sums and a remark, and writes the report with a page of the scenarios that ran.
func printReport(r report.Report, all []spec.Scenario, out string, stdout io.Writer, style report.Style,
	remark string) error {
	selected := map[string]bool{}
	for _, x := range r.Results {
		selected[x.Scenario] = true
	}
	page, err := pageOf("viplab: conformance", all, func(id string) bool { return selected[id] })
	addOthers(&page, r.Results)
	return errors.Join(err, writeReport(r, page, out, stdout, style, remark))
}

// writeReport prints the sums, and then writes report.json, junit.xml and the page into a folder: what is printed does
// not depend on a disk.
func writeReport(r report.Report, page report.Page, out string, stdout io.Writer, style report.Style,
	remark string) error {
	if r.Cluster != "" {
		fmt.Fprintf(stdout, "%s, kernel %s, %.1f s\n\n", r.Cluster, r.Kernel, float64(r.WallMS)/1000)
	}
	if err := r.WriteSums(stdout, style); err != nil {
		return err
	}
	if _, err := io.WriteString(stdout, remark); err != nil {
		return err
	}
	if err := r.WriteAll(out, page); err != nil {
		return err
	}
	_, err := fmt.Fprintf(stdout, "\nreport: %s, report.html and junit.xml\n", filepath.Join(out, "report.json"))
	return err
}

// colours reports whether text is written in colours: on a terminal, unless NO_COLOR (no-color.org) is set.
func colours(w io.Writer) bool {
	return isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}
