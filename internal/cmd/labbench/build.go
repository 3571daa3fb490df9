// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
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

// contender is a lab, or a floor, and what building it takes.
type contender struct {
	name                       string
	build                      func() (tearDown func() error, err error)
	built, cpu, closed, drains []time.Duration
}

// measureBuilds builds the floor and each variant in turn, so that all of them see the same machine.
func measureBuilds(ctx context.Context, d *drain, s size, rounds int) ([]buildRow, error) {
	all := []*contender{
		{name: "the floor, 1 thread", build: func() (func() error, error) { return buildFloor(s, 1) }},
		{name: "the floor, 2 threads", build: func() (func() error, error) { return buildFloor(s, 2) }},
	}
	for _, v := range variants {
		v := topology(v, s)
		name := fmt.Sprintf("stack %s, %s pods, overlay %s", v.Stack, v.PodNetwork, v.Overlay)
		all = append(all, &contender{name: name, build: func() (func() error, error) {
			l, err := lab.Build(ctx, v)
			if err != nil {
				return nil, err
			}
			return l.Close, nil
		}})
	}
	for range rounds {
		for _, c := range all {
			if err := c.measure(d); err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	floor := bench.MedianMS(all[0].built)
	var rows []buildRow
	for _, c := range all {
		median := bench.MedianMS(c.built)
		rows = append(rows, buildRow{
			Nodes: s.nodes, Pods: s.pods, Lab: c.name, Median: median, Ratio: median / floor,
			Min: bench.Milliseconds(slices.Min(c.built)), Max: bench.Milliseconds(slices.Max(c.built)),
			CPU: bench.MedianMS(c.cpu), Close: bench.MedianMS(c.closed), Drained: bench.MedianMS(c.drains),
		})
	}
	return rows, nil
}

// measure builds once and tears down.
func (c *contender) measure(d *drain) error {
	start, cpu := time.Now(), processorTime()
	tearDown, err := c.build()
	if err != nil {
		return err
	}
	c.built, c.cpu = append(c.built, time.Since(start)), append(c.cpu, processorTime()-cpu)
	start = time.Now()
	if err := tearDown(); err != nil {
		return err
	}
	c.closed = append(c.closed, time.Since(start))
	err = d.wait()
	c.drains = append(c.drains, time.Since(start))
	return err
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
