// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/cmd/bench"
	"github.com/viplab/viplab/lab"
)

type size struct{ nodes, pods int }

func (s size) String() string { return fmt.Sprintf("%d x %d", s.nodes, s.pods) }

var sizes = []size{{3, 3}, {10, 10}, {50, 20}}

// variants are the labs that are measured. The first has the shape of the floor.
var variants = []lab.Topology{
	{Overlay: lab.Direct},
	{},
	{PodNetwork: lab.Routed},
	{Stack: lab.Dual},
}

// topology fills a variant with nodes and pods.
func topology(of lab.Topology, s size) lab.Topology {
	for i := range s.nodes {
		n := lab.NodeSpec{Name: fmt.Sprintf("n%d", i+1)}
		for j := range s.pods {
			n.Pods = append(n.Pods, lab.PodSpec{Name: fmt.Sprintf("n%d-p%d", i+1, j+1)})
		}
		of.Nodes = append(of.Nodes, n)
	}
	return of
}

// sample is one build and one teardown.
type sample struct{ build, cpu, close, drained time.Duration }

// measureBuilds builds the floor and each variant in turn, so that all of them see the same machine.
func measureBuilds(ctx context.Context, d *drain, s size, rounds int) ([]buildRow, error) {
	names := []string{"the floor, 1 thread", "the floor, 2 threads"}
	builds := []func() (func() error, error){
		func() (func() error, error) { return buildFloor(s, 1) },
		func() (func() error, error) { return buildFloor(s, 2) },
	}
	for _, v := range variants {
		v := topology(v, s)
		names = append(names, fmt.Sprintf("stack %s, %s pods, overlay %s", v.Stack, v.PodNetwork, v.Overlay))
		builds = append(builds, func() (func() error, error) {
			l, err := lab.Build(ctx, v)
			if err != nil {
				return nil, err
			}
			return l.Close, nil
		})
	}
	samples := make([][]sample, len(builds))
	for range rounds {
		for i, build := range builds {
			one, err := takeSample(d, build)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", names[i], err)
			}
			samples[i] = append(samples[i], one)
		}
	}
	var rows []buildRow
	for i := range builds {
		rows = append(rows, summarize(s, names[i], samples[i], samples[0]))
	}
	return rows, nil
}

func buildFloor(s size, threads int) (func() error, error) {
	f := &floor{nodes: s.nodes, pods: s.pods}
	err := f.build(threads)
	return func() error { f.close(); return nil }, err
}

func takeSample(d *drain, build func() (func() error, error)) (sample, error) {
	var s sample
	start, cpu := time.Now(), processorTime()
	tearDown, err := build()
	if err != nil {
		return s, err
	}
	s.build, s.cpu = time.Since(start), processorTime()-cpu
	start = time.Now()
	if err := tearDown(); err != nil {
		return s, err
	}
	s.close = time.Since(start)
	err = d.wait()
	s.drained = time.Since(start)
	return s, err
}

func summarize(s size, name string, samples, floor []sample) buildRow {
	column := func(of []sample, field func(sample) time.Duration) []time.Duration {
		var out []time.Duration
		for _, one := range of {
			out = append(out, field(one))
		}
		return out
	}
	builds := column(samples, func(s sample) time.Duration { return s.build })
	middle := bench.Median(builds)
	return buildRow{
		Nodes: s.nodes, Pods: s.pods, Lab: name,
		Median: bench.Milliseconds(middle), Min: bench.Milliseconds(builds[0]),
		Max:     bench.Milliseconds(builds[len(builds)-1]),
		Ratio:   float64(middle) / float64(bench.Median(column(floor, func(s sample) time.Duration { return s.build }))),
		CPU:     bench.Milliseconds(bench.Median(column(samples, func(s sample) time.Duration { return s.cpu }))),
		Close:   bench.Milliseconds(bench.Median(column(samples, func(s sample) time.Duration { return s.close }))),
		Drained: bench.Milliseconds(bench.Median(column(samples, func(s sample) time.Duration { return s.drained }))),
	}
}

// processorTime returns what the process has used so far, in the kernel too. On a busy machine it says more than a
// clock.
func processorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
