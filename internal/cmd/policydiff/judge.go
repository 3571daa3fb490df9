// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/viplab/viplab/internal/suite/netpol"
	"github.com/viplab/viplab/lab"
)

// judge compares verdicts.
type judge struct {
	out io.Writer

	mu                            sync.Mutex
	questions, connections, known int
	met                           map[string]int // connections on which each known difference decides
	unexpected                    []string       // questions with other differences
}

// outside returns addresses that no pod has: one in the range of all pods, and one elsewhere.
func outside(q question) []netip.Addr {
	if lab.FamilyOf(q.Cluster.Pods[0].Addrs[0]) == lab.V6 {
		return []netip.Addr{netip.MustParseAddr("fd00:10:244:3::9"), netip.MustParseAddr("2001:db8::9")}
	}
	return []netip.Addr{netip.MustParseAddr("10.244.3.9"), netip.MustParseAddr("192.0.2.9")}
}

// judge asks n questions of several cyclonuses at once.
func (j *judge) judge(ctx context.Context, n int, question func(i int) (question, error)) error {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range runtime.NumCPU() {
		g.Go(func() error {
			o, err := start(ctx)
			if err != nil {
				return err
			}
			for i := int(next.Add(1)) - 1; i < n && err == nil; i = int(next.Add(1)) - 1 {
				q, wrong := question(i)
				if err = wrong; err == nil {
					err = j.ask(o, q)
				}
			}
			return errors.Join(err, o.stop())
		})
	}
	return g.Wait()
}

// ask compares the verdicts on all connections of a question.
func (j *judge) ask(o *oracles, q question) error {
	q.Outside, q.Ports = outside(q), allPorts
	a, err := o.answer(q)
	if err != nil {
		return err
	}
	expected := expect(q.Cluster, quirks)
	without := make([]verdicts, len(quirks))
	for i := range quirks {
		without[i] = expect(q.Cluster, slices.Delete(slices.Clone(quirks), i, i+1))
	}
	var differences []string
	met := map[string]int{}
	known := 0
	flows := q.flows()
	for i, f := range flows {
		ours, theirs := q.Cluster.Allows(f.Flow), a.Allowed[i] == '1'
		switch {
		case theirs != expected(f.Flow):
			differences = append(differences, fmt.Sprintf("%s: allowed by cyclonus %t, by viplab %t", f, theirs, ours))
		case a.Simplified[i] != a.Allowed[i]:
			differences = append(differences, fmt.Sprintf("%s: cyclonus contradicts itself: %t", f, theirs))
		case ours != theirs:
			known++
			for k, quirk := range quirks {
				if without[k](f.Flow) != theirs {
					met[quirk.name]++
				}
			}
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.questions, j.connections, j.known = j.questions+1, j.connections+len(flows), j.known+known
	for name, times := range met {
		j.met[name] += times
	}
	if len(differences) > 0 {
		j.unexpected = append(j.unexpected, q.name)
		j.show(q, differences)
	}
	return nil
}

// show prints the differences of a question, unless many were shown before.
func (j *judge) show(q question, differences []string) {
	const most = 10
	if len(j.unexpected) > most {
		return
	}
	fmt.Fprintf(j.out, "%s: %d differences\n", q.name, len(differences))
	_ = netpol.Describe(j.out, netpol.Case{Policies: q.Cluster.Policies})
	for _, d := range differences[:min(most, len(differences))] {
		fmt.Fprintf(j.out, "  %s\n", d)
	}
}

// summarize prints the counts and reports whether all differences are known, and all known differences have been met.
func (j *judge) summarize(took time.Duration) bool {
	fmt.Fprintf(j.out, "%s and viplab: %d tables, %d connections, %d known differences, %d tables with others, %s\n",
		cyclonus, j.questions, j.connections, j.known, len(j.unexpected), took.Round(time.Second/10))
	agree := len(j.unexpected) == 0
	for _, q := range quirks {
		fmt.Fprintf(j.out, "  %s, %d times: %s\n", q.name, j.met[q.name], q.reason)
		if j.met[q.name] == 0 {
			fmt.Fprintf(j.out, "  %s: no connection shows it: remove it from the list\n", q.name)
			agree = false
		}
	}
	return agree
}
