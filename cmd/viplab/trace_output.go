// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/internal/lab/trace"
	"github.com/viplab/viplab/internal/lab/trace/compare"
	"github.com/viplab/viplab/internal/lab/trace/page"
	"github.com/viplab/viplab/internal/live"
	"github.com/viplab/viplab/lab/traffic"
)

// traceOutput says how to print a trace.
type traceOutput struct {
	format, compare string
	brief           bool
}

// traceFormats are the words for --output.
var traceFormats = []string{"text", "json", "html", "pcapng"}

func (o *traceOutput) add(cmd *cobra.Command) {
	words := "text, json, html (a page to step through) or pcapng"
	cmd.Flags().StringVarP(&o.format, "output", "o", "text", words)
	cmd.Flags().StringVar(&o.compare, "compare", "", `beside the trace in a file of "trace -o json", as text or html`)
	cmd.Flags().BoolVar(&o.brief, "brief", false, "print only what changes or ends the packet")
	complete(cmd, "output", traceFormats...)
}

// check checks the flags, and reads the trace to compare with, if there is one.
func (o *traceOutput) check() (other *live.Traced, err error) {
	formats := traceFormats
	if o.compare != "" {
		formats = []string{"text", "html"}
	}
	if !slices.Contains(formats, o.format) {
		text := strings.Join(formats[:len(formats)-1], ", ") + " or " + formats[len(formats)-1]
		if o.compare != "" {
			text += " with --compare"
		}
		return nil, fmt.Errorf("--output: want %s, not %q", text, o.format)
	}
	if o.compare == "" {
		return nil, nil
	}
	other, err = readTrace(o.compare)
	return other, inFlag("compare", err)
}

// readTrace reads a file of "trace -o json".
func readTrace(file string) (*live.Traced, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var t live.Traced
	if err := json.Unmarshal(bytes.TrimSpace(text), &t); err != nil {
		return nil, fmt.Errorf("%s: want what \"viplab trace -o json\" writes: %w", file, err)
	}
	if t.APIVersion != trace.APIVersion || t.Kind != trace.Kind || t.Walk == nil {
		return nil, fmt.Errorf("%s: want what \"viplab trace -o json\" writes: apiVersion %s and kind %s, not %q and %q",
			file, trace.APIVersion, trace.Kind, t.APIVersion, t.Kind)
	}
	return &t, nil
}

// print prints a trace, beside another one if it is not nil. It fails with exit code 1 if there was no answer.
func (o *traceOutput) print(w io.Writer, t, other *live.Traced) error {
	if err := o.write(w, t, other); err != nil {
		return err
	}
	if t.Outcome != traffic.Reply.String() && t.Outcome != traffic.Garbled.String() {
		return exitCode(1)
	}
	return nil
}

func (o *traceOutput) write(w io.Writer, t, other *live.Traced) error {
	switch {
	case other != nil && o.format == "html":
		return page.WriteBoth(w, other, t)
	case other != nil:
		return compare.Print(w, other, t)
	case o.format == "html":
		return page.Write(w, t)
	case o.format == "pcapng":
		return t.WritePcapng(w)
	case o.format == "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(t)
	}
	return t.PrintIn(w, trace.Style{Brief: o.brief, Colour: isTerminal(w) && os.Getenv("NO_COLOR") == ""})
}
