// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/viplab/viplab/internal/lab/kernel"
	"github.com/viplab/viplab/internal/lessons"
)

// needsOf finds out whether this machine has what lessons need. It runs "viplab doctor", which enters a sandbox.
func needsOf(ctx context.Context, list []*lessons.Lesson) (d diagnosis, err error) {
	var features []string
	for _, l := range list {
		features = append(features, each(l.Needs, func(f kernel.Feature) string { return string(f) })...)
	}
	if len(features) == 0 {
		return d, nil
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append([]string{"doctor", "--json", "--"}, features...)...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
		err = nil // something is missing
	}
	if err == nil {
		err = json.Unmarshal(out, &d)
	}
	if err != nil {
		return d, fmt.Errorf("viplab doctor: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return d, nil
}

// missing returns the part of a diagnosis about what a lesson needs and the machine lacks.
func (d diagnosis) missing(l *lessons.Lesson) diagnosis {
	d.Findings = slices.DeleteFunc(slices.Clone(d.Findings), func(f kernel.Finding) bool {
		return f.Status == kernel.Has || !slices.Contains(l.Needs, f.Feature)
	})
	d.conclude()
	return d
}

// features names what a diagnosis is about.
func (d diagnosis) features() string {
	return strings.Join(each(d.Findings, func(f kernel.Finding) string { return string(f.Feature) }), ", ")
}

// refusal says, in a language, what a lesson needs and the machine lacks, and what to do.
func (d diagnosis) refusal(l *lessons.Lesson, lang string) error {
	var b strings.Builder
	fmt.Fprintf(&b, say(lang, "lacking"), l.Name)
	for _, f := range d.Findings {
		fmt.Fprintf(&b, "\n  %s: %s", f.Feature, f.Detail)
	}
	b.WriteString("\n" + say(lang, "remedies"))
	for _, line := range d.advice() {
		fmt.Fprintf(&b, "\n  %s", line)
	}
	if len(d.InVM) > 0 {
		fmt.Fprintf(&b, "\n"+say(lang, "elsewhere"), l.Name)
	}
	fmt.Fprintf(&b, "\n"+say(lang, "readable"), l.Name)
	return errors.New(b.String())
}
