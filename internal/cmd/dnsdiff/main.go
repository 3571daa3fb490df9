// SPDX-License-Identifier: Apache-2.0

// Command dnsdiff compares the lab's DNS with CoreDNS, which is built from its module. CoreDNS follows the lab's API
// with its plugin kubernetes, in the configuration of kubeadm. Both get the same questions, over UDP and TCP.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/live"
	"github.com/viplab/viplab/lab/sandbox"
)

type options struct {
	seed    uint64
	names   int
	verbose bool
}

func main() {
	var o options
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the generated names")
	flag.IntVar(&o.names, "names", 1000, "number of generated names, beside those of the cluster's objects")
	flag.BoolVar(&o.verbose, "v", false, "print known differences, too")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	agree, err := compare(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "dnsdiff:", err)
		os.Exit(2)
	}
	if !agree {
		os.Exit(1)
	}
}

// compare reports whether the servers agree, but for the known differences.
func compare(ctx context.Context, o options) (agree bool, err error) {
	if !sandbox.Inside() { // the sandbox has no network to build with
		if err := live.CoreDNS.Build(ctx, os.Stderr); err != nil {
			return false, err
		}
	}
	if err := sandbox.Enter(ctx); err != nil {
		return false, err
	}
	w, err := newWorld(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	began := time.Now()
	j := &judge{world: w, out: os.Stdout, verbose: o.verbose, met: map[string]int{}}
	for _, q := range questions(w.state, o.seed, o.names) {
		if err := j.ask(ctx, q); err != nil {
			return false, err
		}
	}
	return j.summarize(time.Since(began)), nil
}
