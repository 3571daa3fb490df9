// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/viplab/viplab/internal/lessons"
)

// checked is the outcome of a lesson that ran as a test.
type checked struct {
	Lesson string `json:"lesson"`
	Passed bool   `json:"passed"`
	// LeftOut is why the lesson did not run, or empty.
	LeftOut string           `json:"left_out,omitempty"`
	TookMS  int64            `json:"took_ms"`
	Steps   []lessons.Result `json:"steps"`
}

// checkAll runs lessons as tests and prints what differs. It leaves out those that need what the machine lacks.
func (f *learnFlags) checkAll(ctx context.Context, w io.Writer, list []*lessons.Lesson) error {
	d, err := needsOf(ctx, list)
	if err != nil {
		return err
	}
	var all []checked
	failed, leftOut := 0, 0
	for _, l := range list {
		c := checked{Lesson: l.Name, LeftOut: d.missing(l).because(), Steps: []lessons.Result{}}
		if c.LeftOut != "" {
			leftOut++
		} else if err := c.run(ctx, l); err != nil {
			return fmt.Errorf("%s: %w", l.Name, err)
		} else if !c.Passed {
			failed++
		}
		all = append(all, c)
		if f.output == "" {
			printChecked(w, c)
		}
	}
	if f.output == "json" {
		if err := printJSON(w, all); err != nil {
			return err
		}
	}
	switch {
	case failed > 0:
		return exitCode(1)
	case leftOut == len(all):
		return errors.New("no lesson was checked: viplab doctor says what to do about what is missing")
	}
	return nil
}

// run runs a lesson as a test.
func (c *checked) run(ctx context.Context, l *lessons.Lesson) error {
	began := time.Now()
	c.Passed = true
	err := inLab(ctx, l, func(shell lessons.Shell, step *lessons.Step) error {
		r, err := l.Try(ctx, shell, step)
		c.Steps = append(c.Steps, r)
		c.Passed = c.Passed && len(r.Problems) == 0
		return err
	})
	c.TookMS = time.Since(began).Milliseconds()
	return err
}

// because returns why a lesson does not run that needs what the diagnosis is about, or nothing if there is none.
func (d diagnosis) because() string {
	if len(d.Findings) == 0 {
		return ""
	}
	return fmt.Sprintf("it needs %s, which this machine lacks", d.features())
}

func printLeftOut(w io.Writer, lesson, why string) {
	fmt.Fprintf(w, "–  %-16s left out: %s\n", lesson, why)
}

func printChecked(w io.Writer, c checked) {
	if c.LeftOut != "" {
		printLeftOut(w, c.Lesson, c.LeftOut)
		return
	}
	sign := "✓"
	if !c.Passed {
		sign = "✗"
	}
	fmt.Fprintf(w, "%s  %-16s %3d steps  %5.1fs\n", sign, c.Lesson, len(c.Steps), float64(c.TookMS)/1000)
	for _, s := range c.Steps {
		if len(s.Problems) > 0 {
			fmt.Fprintf(w, "   step %s differs:\n     %s\n", s.Step,
				strings.ReplaceAll(strings.Join(s.Problems, "\n"), "\n", "\n     "))
		}
	}
}

// inLab calls f with each step of a lesson, in a lab that lives until then and is that of no learner.
func inLab(ctx context.Context, l *lessons.Lesson, f func(lessons.Shell, *lessons.Step) error) (err error) {
	folder, shell, err := lessonLab(ctx, l, fmt.Sprintf("%.20s-%d", l.Name, os.Getpid()))
	if folder.Path != "" {
		defer func() { err = errors.Join(err, end(context.WithoutCancel(ctx), folder)) }()
	}
	if err != nil {
		return err
	}
	for _, step := range l.Steps {
		if err := f(shell, step); err != nil {
			return fmt.Errorf("step %s: %w", step.ID, err)
		}
	}
	return nil
}

// recordLesson runs the commands of a lesson and keeps what they print in its folder. If the machine lacks what the
// lesson needs, it keeps what is there and says so.
func recordLesson(ctx context.Context, w io.Writer, l *lessons.Lesson, folder string) error {
	d, err := needsOf(ctx, []*lessons.Lesson{l})
	if err != nil {
		return err
	}
	if why := d.missing(l).because(); why != "" {
		printLeftOut(w, l.Name, why)
		return nil
	}
	failed := false
	err = inLab(ctx, l, func(shell lessons.Shell, step *lessons.Step) error {
		began := time.Now()
		output, err := shell.Do(ctx, step.Run, io.Discard)
		if err != nil {
			return err
		}
		state := "as recorded"
		if !step.Recorded || len(l.Differences(step, output)) > 0 {
			state = "new output"
		}
		fmt.Fprintf(w, "%s: %s, %.1fs\n", step.ID, state, time.Since(began).Seconds())
		unmet, err := shell.Unmet(ctx, step)
		for _, u := range unmet {
			failed = true
			fmt.Fprintf(w, "  check: %s\n", u)
		}
		return errors.Join(err, l.Record(folder, step, output))
	})
	if err == nil && failed {
		return exitCode(1)
	}
	return err
}
