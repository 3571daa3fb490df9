// SPDX-License-Identifier: Apache-2.0

package main

import (
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
	all, err := readTraces(o.compare)
	if err == nil && len(all) > 1 {
		err = fmt.Errorf("%s: want one trace, not %d", o.compare, len(all))
	}
	if err != nil {
		return nil, inFlag("compare", err)
	}
	return all[0], nil
}

// readTraces reads a file of "trace -o json".
func readTraces(file string) ([]*live.Traced, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	all, err := trace.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return all, nil
}

// streams reports whether traces are printed one after the other; else they are one document.
func (o *traceOutput) streams() bool { return o.format == "text" || o.format == "json" }

// print prints traces, or one beside another that is not nil. It fails with exit code 1 if one of them has no answer.
func (o *traceOutput) print(w io.Writer, other *live.Traced, traces ...*live.Traced) error {
	if err := o.write(w, other, traces); err != nil {
		return err
	}
	for _, t := range traces {
		if t.Outcome != traffic.Reply.String() && t.Outcome != traffic.Garbled.String() {
			return exitCode(1)
		}
	}
	return nil
}

func (o *traceOutput) write(w io.Writer, other *live.Traced, traces []*live.Traced) error {
	switch {
	case other != nil && o.format == "html":
		return page.WriteBoth(w, other, traces[0])
	case other != nil:
		return compare.Print(w, other, traces[0])
	case o.format == "html":
		return page.Write(w, traces...)
	case o.format == "pcapng":
		return trace.WritePcapng(w, traces...)
	}
	for i, t := range traces {
		if i > 0 && o.format == "text" {
			fmt.Fprintln(w)
		}
		if err := o.writeOne(w, t); err != nil {
			return err
		}
	}
	return nil
}

// writeOne writes a trace as JSON or text.
func (o *traceOutput) writeOne(w io.Writer, t *live.Traced) error {
	if o.format == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(t)
	}
	return t.PrintIn(w, trace.Style{Brief: o.brief, Colour: colours(w)})
}
