// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/viplab/viplab/internal/live"
)

// judge compares replies.
type judge struct {
	*world
	out     io.Writer
	verbose bool

	asked, known, unexpected int
	met                      map[string]int // how often each reason of a known difference applied
}

// ask asks both servers and compares what they say, field by field.
func (j *judge) ask(ctx context.Context, q question) error {
	j.asked++
	t, o := j.exchange(ctx, theirs, q), j.exchange(ctx, ours, q)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	differing := slices.DeleteFunc(slices.Clone(fields), func(f string) bool { return t[f] == o[f] })
	reasons, left := reasonsFor(q, t, o, differing)
	for _, reason := range reasons {
		j.met[reason]++
	}
	switch {
	case len(left) > 0:
		j.unexpected++
	case len(differing) > 0:
		j.known++
	}
	if len(left) == 0 && (len(differing) == 0 || !j.verbose) {
		return nil
	}
	fmt.Fprintln(j.out, q)
	for _, f := range differing {
		fmt.Fprintf(j.out, "  %s\n    coredns %s\n    viplab  %s\n", f, inLine(t[f]), inLine(o[f]))
	}
	for _, reason := range reasons {
		fmt.Fprintf(j.out, "  known: %s\n", reason)
	}
	return nil
}

// inLine returns a few records in one line.
func inLine(s string) string {
	all := strings.Split(s, "\n")
	if len(all) > 4 {
		all = append(all[:4], fmt.Sprintf("... (%d)", len(all)))
	}
	return "[" + strings.Join(all, "; ") + "]"
}

// summarize prints the counts and reports whether all differences are known, and all known differences have been met.
func (j *judge) summarize(took time.Duration) bool {
	fmt.Fprintf(j.out, "%s and viplab: %d questions, %d known differences, %d others, %s\n", live.CoreDNS, j.asked,
		j.known, j.unexpected, took.Round(time.Second/10))
	agree := j.unexpected == 0
	for _, k := range knownDifferences {
		fmt.Fprintf(j.out, "  known, %d times: %s\n", j.met[k.reason], k.reason)
		if j.met[k.reason] == 0 {
			fmt.Fprintf(j.out, "  no question shows this: remove it from the list\n")
			agree = false
		}
	}
	return agree
}
