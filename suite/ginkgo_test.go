// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/suite/spec"
)

// The engine runs many scenarios concurrently in one process, and Ginkgo cannot. So the engine runs them, and a Ginkgo
// spec for each cell of the matrix waits for its verdict.

// part is a run of the engine under a title, for example one kind of cluster.
type part struct {
	title   string
	options engine.Options

	cells []*engine.Cell
	run   *engine.Run
}

// runSpecs runs the parts one after another as one Ginkgo suite, because a process can run only one suite. If a part is
// invalid, runSpecs returns an error and runs nothing.
func runSpecs(ctx context.Context, t ginkgo.GinkgoTestingT, title string, parts []*part, suite types.SuiteConfig,
	reporter types.ReporterConfig) error {
	if suite.ParallelTotal > 1 {
		return errors.New("ginkgo -p starts several processes, each of which would run all scenarios: run without " +
			"-p, scenarios run side by side anyway")
	}
	for _, p := range parts {
		if err := p.declare(ctx); err != nil {
			return err
		}
	}
	selected := map[string]bool{}
	for _, s := range ginkgo.PreviewSpecs(title, suite, reporter).SpecReports {
		if s.State.Is(types.SpecStatePassed) {
			selected[s.FullText()] = true
		}
	}
	for _, p := range parts {
		p.run = engine.NewRun(p.only(selected), p.options)
	}
	go func() {
		for _, p := range parts {
			p.run.Do(ctx)
		}
	}()
	ginkgo.RunSpecs(t, title, suite, reporter)
	return nil
}

// declare plans the part and adds a spec for each of its cells.
func (p *part) declare(ctx context.Context) error {
	cells, err := engine.Plan(ctx, p.options)
	if err != nil {
		return err
	}
	p.cells = cells
	ginkgo.Describe(p.title, func() {
		for _, c := range cells {
			ginkgo.It(specName(c), labels(c), func(ctx ginkgo.SpecContext) { await(ctx, c) })
		}
	})
	return nil
}

func specName(c *engine.Cell) string { return c.Scenario.ID + " on " + c.Proxier.Name() }

func (p *part) fullText(c *engine.Cell) string { return p.title + " " + specName(c) }

func labels(c *engine.Cell) ginkgo.Labels {
	group := strings.ReplaceAll(c.Scenario.Group, "/", "-") // labels cannot contain slashes
	l := ginkgo.Label("group:"+group, "priority:"+string(c.Scenario.Priority), "proxier:"+c.Proxier.Name())
	for _, f := range c.Scenario.Needs {
		l = append(l, "feature:"+string(f))
	}
	return l
}

// only returns the cells of the part that Ginkgo selected.
func (p *part) only(selected map[string]bool) []*engine.Cell {
	var cells []*engine.Cell
	for _, c := range p.cells {
		if selected[p.fullText(c)] {
			cells = append(cells, c)
		}
	}
	return cells
}

// await waits for a cell and reports its verdict to Ginkgo.
func await(ctx context.Context, c *engine.Cell) {
	r, err := c.Wait(ctx)
	if err != nil {
		ginkgo.Fail(err.Error())
	}
	ginkgo.AddReportEntry("took", r.Took, ginkgo.ReportEntryVisibilityNever)
	switch r.Verdict {
	case spec.Skip:
		ginkgo.Skip(r.Reason)
	case spec.Fail:
		ginkgo.Fail(fmt.Sprintf("%s\n%s", c.Scenario.Why, r.Reason))
	case spec.Broken:
		ginkgo.Fail("BROKEN (the harness, not the proxier): " + r.Reason)
	}
}
