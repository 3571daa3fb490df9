// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/viplab/viplab/suite/spec"
)

// Read reads a report.json, or the one in a folder, and the traces beside it.
func Read(path string) (Report, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "report.json")
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		folder := filepath.Dir(path)
		return Report{}, fmt.Errorf("%s: there is no report; viplab conform --out %s writes one", path, folder)
	}
	if err != nil {
		return Report{}, err
	}
	var r Report
	if err := json.Unmarshal(data, &r); err != nil {
		return Report{}, fmt.Errorf("%s: it is no report: %w", path, err)
	}
	if r.Kind != Kind || r.APIVersion != APIVersion {
		return Report{}, fmt.Errorf("%s: it is a %q of apiVersion %q; this viplab reads a %s of %s", path, r.Kind,
			r.APIVersion, Kind, APIVersion)
	}
	return r, r.ReadTraces(filepath.Dir(path))
}

// weight orders verdicts: of several for one cell, the heaviest counts.
var weight = map[spec.Verdict]int{spec.Skip: 1, spec.Pass: 2, spec.Known: 3, spec.Broken: 4, spec.Fail: 5}

// Merge makes one report of several: of runs on other kernels, in other clusters, or of other proxiers. Where a
// scenario ran on a proxier more than once, what is worst counts, and a skip only if there is nothing else.
func Merge(reports ...Report) Report {
	out := Report{APIVersion: APIVersion, Kind: Kind, Results: []Result{}}
	var kernels, clusters, versions []string
	at := map[[2]string]int{}
	for _, r := range reports {
		kernels, clusters, versions = append(kernels, r.Kernel), append(clusters, r.Cluster),
			append(versions, r.Suite.Version)
		out.Proxiers = append(out.Proxiers, r.Proxiers...) // for their versions and features
		for _, x := range r.Results {
			key := [2]string{x.Proxier, x.Scenario}
			i, known := at[key]
			switch {
			case !known:
				at[key] = len(out.Results)
				out.Results = append(out.Results, x)
			case weight[x.Verdict] > weight[out.Results[i].Verdict]:
				out.Results[i] = x
			}
		}
	}
	out.Kernel, out.Cluster, out.Suite.Version = several(kernels), several(clusters), several(versions)
	out.sumUp()
	return out
}

func several(texts []string) string {
	slices.Sort(texts)
	return strings.Join(slices.Compact(texts), "; ")
}

// sumUp counts the results. Those of one proxier need not stand together. Proxiers keep their versions and features.
func (r *Report) sumUp() {
	before := r.Proxiers
	r.Proxiers = []Proxier{}
	for _, x := range r.Results {
		r.count(x)
	}
	for i := range r.Proxiers {
		p := &r.Proxiers[i]
		p.Issues, p.Verdict = len(r.issues(p.Name)), p.verdict()
		if i := slices.IndexFunc(before, func(b Proxier) bool { return b.Name == p.Name }); i >= 0 {
			p.Version, p.Features = before[i].Version, before[i].Features
		}
	}
	r.Suite.Scenarios = len(r.scenarios())
}

func (r *Report) count(x Result) {
	i := slices.IndexFunc(r.Proxiers, func(p Proxier) bool { return p.Name == x.Proxier })
	if i < 0 {
		i = len(r.Proxiers)
		r.Proxiers = append(r.Proxiers, Proxier{Name: x.Proxier})
	}
	p := &r.Proxiers[i]
	switch x.Verdict {
	case spec.Pass:
		p.Passed++
	case spec.Known:
		p.Known++
	case spec.Fail:
		p.Failed++
	case spec.Skip:
		p.Skipped++
		*p.skippedFor(x.Cause)++
	default:
		p.Broken++
	}
	p.TookMS += x.TookMS
	p.OmittedRows += len(x.OmittedRows)
}

// skippedFor returns the counter of scenarios that were skipped for a cause.
func (p *Proxier) skippedFor(c spec.Cause) *int {
	switch c {
	case spec.NotApplicable:
		return &p.NotApplicable
	case spec.NotImplemented:
		return &p.NotImplemented
	case spec.NotOffered:
		return &p.NotOffered
	default:
		return &p.NotRun
	}
}

// issues returns the known deviations of a proxier with the scenarios that show them, each deviation once.
func (r *Report) issues(proxier string) map[string][]string {
	out := map[string][]string{}
	for _, x := range r.only(func(x Result) bool { return x.Proxier == proxier }) {
		for _, k := range x.Known {
			if !slices.Contains(out[k], x.Scenario) {
				out[k] = append(out[k], x.Scenario)
			}
		}
	}
	return out
}
