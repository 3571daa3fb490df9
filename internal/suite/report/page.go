// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/viplab/viplab/internal/lab/trace"
	drawing "github.com/viplab/viplab/internal/lab/trace/page"
	"github.com/viplab/viplab/suite/spec"
)

// Page is what a report's page shows beside the verdicts: rows of the catalogue and the scenarios that prove them.
type Page struct {
	Title  string
	Groups []PageGroup
}

// PageGroup is a family of rows.
type PageGroup struct {
	Name  string    `json:"name"`
	Title string    `json:"title"`
	Rows  []PageRow `json:"rows"`
}

// PageRow is a behaviour. One without scenarios stands out.
type PageRow struct {
	ID        string `json:"id"`
	Priority  string `json:"priority"`
	Behaviour string `json:"behaviour"`
	Modes     string `json:"modes"`
	Source    string `json:"source"`
	// Test is what shows it where no scenario does: a package and a test.
	Test      string         `json:"test,omitempty"`
	Scenarios []PageScenario `json:"scenarios"`
}

// PageScenario is a scenario as a person reads it.
type PageScenario struct {
	ID  string `json:"id"`
	Why string `json:"why"`
	// Kind is what it is about: a promise, an option or a mechanism. Authorities are those of its options.
	Kind        spec.Kind `json:"kind"`
	Authorities []string  `json:"authorities"`
	// Manifest is what the scenario begins with, and what it then does, for a real cluster.
	Manifest string `json:"manifest"`
	// Pods are on which node, at the start.
	Pods map[string]string `json:"pods"`
}

// Only returns the page with those scenarios alone that results are of.
func (p Page) Only(results []Result) Page {
	of := map[string]bool{}
	for _, x := range results {
		of[x.Scenario] = true
	}
	out := Page{Title: p.Title}
	for _, g := range p.Groups {
		rows := g.Rows
		g.Rows = nil
		for _, row := range rows {
			other := func(s PageScenario) bool { return !of[s.ID] }
			row.Scenarios = slices.DeleteFunc(slices.Clone(row.Scenarios), other)
			if len(row.Scenarios) > 0 {
				g.Rows = append(g.Rows, row)
			}
		}
		if len(g.Rows) > 0 {
			out.Groups = append(out.Groups, g)
		}
	}
	return out
}

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

//go:embed page_matrix.js
var pageMatrixJS string

//go:embed page_detail.js
var pageDetailJS string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"took": took, "first": first, "counters": counters, "families": families, "stack": stack,
	"failed": Report.failed, "tookMS": func(ms int64) string { return took(Result{TookMS: ms}) },
}).Parse(pageHTML))

// WritePage writes the report as one HTML page that needs no network. A file of a failure that is in the folder of the
// page is a link in it.
func (r Report) WritePage(w io.Writer, folder string, page Page) error {
	return pageTemplate.Execute(w, map[string]any{
		"Title":    page.Title,
		"Report":   r,
		"Failures": r.failures(firstLine),
		"Known":    r.knownDeviations(),
		"Groups":   r.matrix(page, folder),
		"Style":    CSS(),
		"Matrix":   MatrixScript(),
		"Detail":   template.JS(pageDetailJS),
		// The same drawing as that of "viplab trace -o html".
		"TraceStyle": drawing.Style(), "TraceScript": drawing.Script(),
	})
}

// CSS returns the style of the pages of reports, for other pages with such a matrix.
func CSS() template.CSS { return template.CSS(pageCSS) }

// MatrixScript returns the script that filters a matrix and moves in it, for a page that embeds CSS. Its functions
// choose(query) and key(event) are for the page's own listeners.
func MatrixScript() template.JS { return template.JS(pageMatrixJS) }

// ReadTraces reads the traces that the results name, for WritePage. A folder may lack them.
func (r Report) ReadTraces(folder string) error {
	for i := range r.Results {
		result := &r.Results[i]
		for _, p := range result.Probed {
			if p.Trace == "" {
				continue
			}
			file := filepath.Join(folder, p.Trace)
			text, err := os.ReadFile(file)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			t, err := trace.Parse(text)
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			if result.traces == nil {
				result.traces = map[string]*trace.Traced{}
			}
			result.traces[p.Trace] = drawing.Drawn(t[0])
		}
	}
	return nil
}

// WriteAll writes report.json, junit.xml and, with the traces in the folder, report.html.
func (r Report) WriteAll(folder string, page Page) error {
	return errors.Join(r.WriteJSON(folder), r.WriteJUnit(folder), r.ReadTraces(folder),
		r.WritePageFile(filepath.Join(folder, "report.html"), page))
}

// WritePageFile writes the page into a file, and makes its folder if need be.
func (r Report) WritePageFile(file string, page Page) error {
	var b bytes.Buffer
	if err := r.WritePage(&b, filepath.Dir(file), page); err != nil {
		return err
	}
	return WriteFile(file, b.Bytes())
}
