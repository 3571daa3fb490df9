// SPDX-License-Identifier: Apache-2.0

// Command policydiff compares the oracle of network policies with that of cyclonus
// (github.com/mattfenwick/cyclonus), which is built from its module. Both judge every connection of all cases that
// cyclonus generates, and of generated cases of viplab. -write makes a file of cyclonus' cases, with its verdicts, for
// "viplab netpol --cases". -packets plays those of its cases that change pods or namespaces, which such a file cannot
// have, with packets.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/suite/netpol"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/sandbox"
)

type options struct {
	seed  uint64
	cases int
	write string

	packets bool
}

func main() {
	var o options
	flag.Uint64Var(&o.seed, "seed", 1, "seed of viplab's generated cases")
	flag.IntVar(&o.cases, "cases", 10000, "number of viplab's generated cases")
	flag.StringVar(&o.write, "write", "", "file to write cyclonus' cases to, for viplab netpol --cases")
	flag.BoolVar(&o.packets, "packets", false, "instead, send packets in cyclonus' cases that change pods or namespaces")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	agree, err := compare(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "policydiff:", err)
		os.Exit(2)
	}
	if !agree {
		os.Exit(1)
	}
}

// compare reports whether the oracles agree, but for the known differences.
func compare(ctx context.Context, o options) (agree bool, err error) {
	if err := cyclonus.Build(ctx, os.Stderr); err != nil {
		return false, err
	}
	if o.packets {
		if err := sandbox.Enter(ctx); err != nil {
			return false, err
		}
		return packets(ctx)
	}
	began := time.Now()
	j := &judge{out: os.Stdout, met: map[string]int{}}
	var steps []step
	for _, stack := range []lab.Stack{lab.IPv4, lab.IPv6} {
		theirs, err := casesOf(ctx, stack)
		if err != nil {
			return false, err
		}
		if err := j.judge(ctx, len(theirs), func(i int) (question, error) { return theirs[i].question(stack) }); err != nil {
			return false, err
		}
		if stack == lab.IPv4 {
			steps = theirs
		}
	}
	for _, stack := range []lab.Stack{lab.IPv4, lab.IPv6} {
		err := j.judge(ctx, o.cases, func(i int) (question, error) {
			c := netpol.Random(o.seed, uint64(i))
			cluster, err := c.Cluster(stack)
			return question{name: c.ID + ", " + stack.String(), Cluster: cluster}, err
		})
		if err != nil {
			return false, err
		}
	}
	if o.write != "" {
		if err := write(ctx, o.write, steps); err != nil {
			return false, err
		}
	}
	return j.summarize(time.Since(began)), nil
}
