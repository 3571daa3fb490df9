// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/viplab/viplab/suite/spec"
)

// shard is a part with one passed scenario, of a run of three.
func shard(text, scenario string) Part {
	r := New("v1", "k", "c", []spec.Result{result(scenario, "p", spec.Pass)})
	r.Suite.Shard, r.Suite.Whole, r.WallMS = text, 3, 10
	r.Date = time.Date(2026, 1, len(scenario), 0, 0, 0, 0, time.UTC)
	return Part{Path: "folder-" + scenario, Report: r}
}

func TestJoinShards(t *testing.T) {
	long := shard("2/3", "bb")
	long.WallMS = 30
	parts := []Part{shard("3/3", "ccc"), shard("1/3", "a"), long}
	for i := range parts {
		parts[i].SetFeatures("p", spec.Features(spec.NodePort, spec.ClusterIP))
	}
	whole, err := Join(parts...)
	if err != nil {
		t.Fatal(err)
	}
	if got := whole.Proxiers[0].Features; !slices.Equal(got, []spec.Feature{spec.ClusterIP, spec.NodePort}) {
		t.Errorf("it declares %v", got)
	}
	if len(whole.Results) != 3 || whole.Suite != (Suite{Version: "v1", Scenarios: 3}) || whole.WallMS != 30 ||
		whole.Date.Day() != 1 || whole.ExitCode() != 0 || whole.Proxiers[0].Passed != 3 {
		t.Errorf("%+v", whole)
	}
}

// The report of what is there can be joined with what comes later.
func TestJoinNamesMissingShards(t *testing.T) {
	some, err := Join(shard("3/3", "ccc"), shard("1/3", "a"))
	var missing *MissingError
	if !errors.As(err, &missing) || missing.Error() != "p lacks shard 2/3" || len(some.Results) != 2 ||
		some.Suite.Shard != "1/3,3/3" {
		t.Fatalf("%+v, %v", some, err)
	}
	whole, err := Join(Part{Path: "some", Report: some}, shard("2/3", "bb"))
	if err != nil || len(whole.Results) != 3 || whole.Suite.Shard != "" {
		t.Errorf("%+v, %v", whole, err)
	}
}

func TestJoinRefusesWhatDoesNotBelongTogether(t *testing.T) {
	one := shard("1/2", "a")
	one.SetFeatures("p", spec.Features(spec.NodePort, spec.ClusterIP))
	of := func(change func(*Part)) Part {
		p := shard("2/2", "bb")
		p.Results, p.Proxiers = slices.Clone(p.Results), slices.Clone(p.Proxiers)
		change(&p)
		return p
	}
	for _, c := range []struct {
		other Part
		want  string
	}{
		{of(func(p *Part) { p.Suite.Version = "v2" }), "folder-a is of viplab v1, and folder-bb of v2"},
		{of(func(p *Part) { p.SetVersion("p", "v9") }), "proxier p"},
		{of(func(p *Part) { p.SetFeatures("p", spec.Features(spec.SCTP)) }),
			"folder-a is of proxier p with the features [clusterip nodeport], and folder-bb of [sctp]"},
		{of(func(p *Part) { p.Settings.IP = "4" }), "clusters of different kinds"},
		{of(func(p *Part) { p.Results[0].Scenario = "a" }), "folder-a and folder-bb overlap: both have a on p"},
		{of(func(p *Part) { p.Suite.Shard = "2/4" }), "merge the shards of one run"},
		{of(func(p *Part) { p.Suite.Shard = "half" }), `folder-bb: shard "half": want I/N`},
		{of(func(*Part) {}), "the shards of p have 2 of 3 scenarios"},
	} {
		if _, err := Join(one, c.other); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("it says %v, want %q", err, c.want)
		}
	}
}
