// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/internal/suite/page"
	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/suite/spec"
)

// running is a run of the engine for a test.
type running struct {
	run     *engine.Run
	options engine.Options
	version string // of the proxiers
	began   time.Time
}

func newRunning(o engine.Options, chosen []*engine.Cell, version string) *running {
	return &running{run: engine.NewRun(chosen, o), options: o, version: version, began: time.Now()}
}

// finish writes the reports and removes the clusters. It fails the test if nothing has run.
func (r *running) finish(ctx context.Context, t *testing.T) {
	t.Helper()
	results := r.run.Results()
	if err := r.write(t.Name(), results); err != nil {
		t.Errorf("write the report: %v", err)
	}
	if err := r.run.Close(ctx); err != nil {
		t.Error(err)
	}
	if !slices.ContainsFunc(results, func(x spec.Result) bool { return x.Verdict != spec.Skip }) {
		t.Error("no scenario ran: nothing is proved")
	}
}

// write writes report.json, junit.xml and report.html.
func (r *running) write(test string, results []spec.Result) error {
	all := report.New(viplabVersion(), kernelRelease(), r.run.Note(), results)
	all.Date, all.Command = r.began.UTC().Truncate(time.Second), "go test -run '^"+test+"$'"
	all.WallMS = time.Since(r.began).Milliseconds()
	all.Settings = report.Settings{
		IP: r.options.Stack.String(), Pods: r.options.PodNetwork.String(), Overlay: r.options.Overlay.String(),
	}
	if r.options.Enforcer != nil {
		all.Settings.Enforcer = r.options.Enforcer.Name()
	}
	for _, p := range r.options.Proxiers {
		all.SetVersion(p.Name(), r.version)
		all.SetFeatures(p.Name(), p.Features())
	}
	chosen := map[string]bool{}
	for _, x := range results {
		chosen[x.Scenario.ID] = true
	}
	shown, err := page.Of("viplab: conformance", r.options.Scenarios, func(id string) bool { return chosen[id] })
	if err != nil {
		return err
	}
	return all.WriteAll(r.options.Out, shown)
}

// module is the path of viplab's module.
const module = "github.com/viplab/viplab"

// viplabVersion returns the version of viplab's module in this test binary.
func viplabVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path == module && m.Replace == nil {
			return m.Version
		}
	}
	return "(devel)"
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}
