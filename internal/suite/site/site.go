// SPDX-License-Identifier: Apache-2.0

// Package site writes many reports as a static site: what each version of a proxier did in each scenario, what changed
// from one version to the next, and the page of each report. The site needs no network.
package site

import (
	"bytes"
	_ "embed" // the pages
	"errors"
	"fmt"
	"html/template"
	"path/filepath"
	"slices"
	"strings"

	"github.com/viplab/viplab/internal/suite/report"
)

// Run is a report of a site.
type Run struct {
	Path string // where the report was read, for messages
	report.Report
	Page report.Page // what the report's page shows beside the verdicts
	// Name is the folder of the report in the site, below reports/. New sets it.
	Name string
}

// Site is a site that New has arranged.
type Site struct {
	Runs   []Run // the oldest one first
	series []*series
}

// New arranges reports by the dates of their runs. It returns an error for a report without a date, or without results.
func New(runs []Run) (*Site, error) {
	var errs []error
	for _, r := range runs {
		switch {
		case r.Date.IsZero():
			errs = append(errs, fmt.Errorf("%s: the report has no date, so it has no place in the site: run it again "+
				"with this version of viplab", r.Path))
		case len(r.Results) == 0:
			errs = append(errs, fmt.Errorf("%s: the report has no results: leave it out", r.Path))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	s := &Site{Runs: slices.Clone(runs)}
	slices.SortStableFunc(s.Runs, func(a, b Run) int { return a.Date.Compare(b.Date) })
	names := map[string]bool{}
	for i := range s.Runs {
		r := &s.Runs[i]
		r.Name = unused(names, r.Date.UTC().Format("2006-01-02T150405Z"))
		for _, p := range r.Proxiers {
			s.add(r, p)
		}
	}
	names = map[string]bool{"index": true}
	for _, x := range s.series {
		x.File = unused(names, fileName(x.Title())) + ".html"
	}
	return s, nil
}

// unused returns a name that was not given before, with a number behind it if need be.
func unused(names map[string]bool, name string) string {
	found := name
	for i := 2; names[found]; i++ {
		found = fmt.Sprintf("%s-%d", name, i)
	}
	names[found] = true
	return found
}

// fileName replaces what a name of a file, or an address, should not have.
func fileName(title string) string {
	return strings.Join(strings.FieldsFunc(title, func(c rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", c)
	}), "-")
}

// Folder returns where the report and its files are in a site in a folder.
func (r Run) Folder(site string) string { return filepath.Join(site, "reports", r.Name) }

//go:embed index.html
var indexHTML string

//go:embed series.html
var seriesHTML string

var (
	functions = template.FuncMap{"style": report.CSS, "script": report.MatrixScript}
	index     = template.Must(template.New("index").Funcs(functions).Parse(indexHTML))
	page      = template.Must(template.New("series").Funcs(functions).Parse(seriesHTML))
)

// Write writes the site into a folder, which it makes if need be: index.html, a page for each proxier, comparisons, and
// the reports as JSON and as pages, which link to those files of theirs that are in their folders.
func (s *Site) Write(folder string) error {
	for _, r := range s.Runs {
		at := r.Folder(folder)
		if err := errors.Join(r.WriteJSON(at), r.WritePageFile(filepath.Join(at, "report.html"), r.Page)); err != nil {
			return err
		}
	}
	for _, x := range s.series {
		for _, v := range x.Versions {
			if v.Comparison == nil {
				continue
			}
			file := filepath.Join(folder, filepath.FromSlash(v.ComparisonAddress()))
			if err := v.Comparison.WritePage(file, "../"+v.Address()); err != nil {
				return err
			}
		}
		if err := execute(page, filepath.Join(folder, x.File), x); err != nil {
			return err
		}
	}
	return execute(index, filepath.Join(folder, "index.html"), map[string]any{"Series": s.series, "Runs": s.Runs})
}

func execute(t *template.Template, file string, data any) error {
	var b bytes.Buffer
	if err := t.Execute(&b, data); err != nil {
		return err
	}
	return report.WriteFile(file, b.Bytes())
}
