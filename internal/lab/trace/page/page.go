// SPDX-License-Identifier: Apache-2.0

// Package page shows traces as a page to step through. It needs nothing else, neither files nor a network.
package page

import (
	_ "embed" // the parts of the page
	"html/template"
	"io"
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

// data is what the script shows: see mount in player.js.
type data struct {
	Traces []*trace.Traced `json:"traces"`
	Titles []string        `json:"titles,omitempty"`
	Rows   []compare.Pair  `json:"rows,omitempty"`
}

// Write writes a page of one trace.
func Write(w io.Writer, t *trace.Traced) error {
	return write(w, compare.Request(t), data{Traces: []*trace.Traced{t}})
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
	return pageTemplate.Execute(w, map[string]any{
		"Title": title, "Data": d, "Style": Style(), "Script": script(pageJS, "start();"),
	})
}

// Style returns the style of the drawings, for a page that embeds them. All classes begin with "tv".
func Style() template.CSS { return template.CSS(pageCSS) }

// Script returns the function showTrace(element, trace) for a page that embeds Style: it shows a trace, as JSON, in an
// element.
func Script() template.JS {
	return script("window.showTrace = (element, trace) => mount(element, { traces: [trace] });")
}

func script(last ...string) template.JS {
	parts := append([]string{"(() => {\n'use strict';", domJS, modelJS, networkJS, chainsJS, playerJS}, last...)
	return template.JS(strings.Join(append(parts, "})();"), "\n"))
}
