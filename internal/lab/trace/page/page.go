// SPDX-License-Identifier: Apache-2.0

// Package page shows traces as a page to step through. It needs nothing else, neither files nor a network.
package page

import (
	_ "embed" // the parts of the page
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/viplab/viplab/internal/lab/trace"
	"github.com/viplab/viplab/internal/lab/trace/compare"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

//go:embed dom.js
var domJS string

//go:embed model.js
var modelJS string

//go:embed network.js
var networkJS string

//go:embed chains.js
var chainsJS string

//go:embed player.js
var playerJS string

//go:embed page.js
var pageJS string

var pageTemplate = template.Must(template.New("page").Parse(pageHTML))

// data is what the script shows: see start in page.js and mount in player.js.
type data struct {
	Traces []*trace.Traced `json:"traces"`
	Titles []string        `json:"titles,omitempty"`
	Rows   []compare.Pair  `json:"rows,omitempty"`
	// Series reports that the traces are of requests that followed one another: the page shows one of them at a time.
	Series bool `json:"series,omitempty"`
}

// Write writes a page of requests that followed one another, at least one. It shows one at a time.
func Write(w io.Writer, traces ...*trace.Traced) error {
	return write(w, compare.Request(traces[0]), data{Traces: traces, Series: len(traces) > 1})
}

// WriteBoth writes a page of two traces side by side.
func WriteBoth(w io.Writer, a, b *trace.Traced) error {
	titles := compare.Titles(a, b)
	title := strings.Join(titles, " | ")
	if compare.Request(a) == compare.Request(b) {
		title = compare.Request(a) + ": " + title
	}
	return write(w, title,
		data{Traces: []*trace.Traced{a, b}, Titles: titles, Rows: compare.Align(a, b)})
}

func write(w io.Writer, title string, d data) error {
	d.Traces = slices.Clone(d.Traces)
	for i, t := range d.Traces {
		d.Traces[i] = Drawn(t)
	}
	return pageTemplate.Execute(w, map[string]any{
		"Title": title, "Data": d, "Style": Style(), "Script": script(pageJS, "start();"),
	})
}

// Drawn returns what the drawing needs of a trace: no frames.
func Drawn(t *trace.Traced) *trace.Traced {
	drawn := *t
	drawn.Walk, drawn.Relayed, drawn.Reply = withoutFrames(t.Walk), withoutFrames(t.Relayed), withoutFrames(t.Reply)
	drawn.Errors = nil
	for _, w := range t.Errors {
		drawn.Errors = append(drawn.Errors, withoutFrames(w))
	}
	return &drawn
}

func withoutFrames(w *trace.Walk) *trace.Walk {
	if w == nil {
		return nil
	}
	out := *w
	out.Steps = slices.Clone(w.Steps)
	for i := range out.Steps {
		out.Steps[i].Frame = nil
	}
	return &out
}

// Style returns the style of the drawings, for a page that embeds them. All classes begin with "tv".
func Style() template.CSS { return template.CSS(pageCSS) }

// Script returns the function showTrace(element, trace) for a page that embeds Style. It shows a trace, as JSON, in an
// element, where its request ended, and returns the player, whose key(event) takes keys.
func Script() template.JS {
	return script(`window.showTrace = (element, trace) =>
	mount(element, { traces: [trace], start: trace.walk.end ? trace.walk.end.step : 0 });`)
}

func script(last ...string) template.JS {
	parts := append([]string{"(() => {\n'use strict';", domJS, modelJS, networkJS, chainsJS, playerJS}, last...)
	return template.JS(strings.Join(append(parts, "})();"), "\n"))
}
