// SPDX-License-Identifier: Apache-2.0

// Command netpolbench measures how long a table of network policies takes, and all static cases. It compares them with
// a tool that waits for a timeout on each denied probe.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/viplab/viplab/internal/cmd/bench"
	"github.com/viplab/viplab/internal/suite/netpol"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/proxiers"
	"github.com/viplab/viplab/suite/spec"
)

func main() { bench.Main(measure) }

// Cyclonus at its defaults: 15 workers, each waits 10 s for an answer, and 5 s for policies to take effect in each
// case.
const (
	cyclonusTimeout = 10 * time.Second
	cyclonusWorkers = 15
	cyclonusPause   = 5 * time.Second
)

func measure(ctx context.Context) error {
	if err := sandbox.Enter(ctx); err != nil {
		return err
	}
	w := os.Stdout
	cases, err := netpol.Static()
	if err != nil {
		return err
	}
	names, err := netpol.NamesOf(cases)
	if err != nil {
		return err
	}
	denied := 0
	for _, c := range cases {
		denied += c.Blocked.Blocked()
	}
	fmt.Fprintf(w, "network policies: %d cases, %d probes, %d of them denied\n", len(cases), len(cases)*netpol.Cells,
		denied)
	for _, e := range proxiers.Enforcers() {
		if err := e.Usable(ctx); err != nil {
			fmt.Fprintf(w, "  %-16s %v\n", e.Name(), err)
			continue
		}
		o := netpol.Options{Stack: lab.IPv4, PodNetwork: lab.Routed, NamedPorts: names}
		tables, _, err := judge(ctx, 1, e, o, cases)
		if err != nil {
			return fmt.Errorf("%s: %w", e.Name(), err)
		}
		_, whole, err := judge(ctx, runtime.GOMAXPROCS(0), e, o, cases)
		if err != nil {
			return fmt.Errorf("%s: %w", e.Name(), err)
		}
		fmt.Fprintf(w, "  %-16s a table of %d probes %v (median; 95 %%: %v); all cases %.1f s on %d CPUs\n", e.Name(),
			netpol.Cells,
			bench.Median(tables).Round(100*time.Microsecond), bench.Percentile(tables, 95).Round(100*time.Microsecond),
			whole.Seconds(), runtime.GOMAXPROCS(0))
	}
	waiting := time.Duration(denied)*cyclonusTimeout/cyclonusWorkers + time.Duration(len(cases))*cyclonusPause
	fmt.Fprintf(w, "  the same cases where a denied probe waits %v, %d at a time, and each case %v: %v of waiting\n",
		cyclonusTimeout, cyclonusWorkers, cyclonusPause, waiting.Round(time.Minute))
	return nil
}

// judge returns the times of the tables of all cases, and the time of all together, on a number of clusters. It does
// not count the time of building them.
func judge(ctx context.Context, clusters int, e spec.Proxier, o netpol.Options,
	cases []netpol.Case) (tables []time.Duration, took time.Duration, err error) {
	pool, err := netpol.NewPool(ctx, clusters, e, o)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, pool.Close(context.WithoutCancel(ctx))) }()
	var mu sync.Mutex
	began := time.Now()
	err = pool.Each(len(cases), func(i int, b *netpol.Bench) error {
		verdicts, err := b.Judge(ctx, cases[i])
		if _, err := netpol.SumUp(verdicts, err); err != nil {
			return fmt.Errorf("%s: %w", cases[i].ID, err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, v := range verdicts {
			tables = append(tables, v.Took)
		}
		return nil
	})
	return tables, time.Since(began), err
}
