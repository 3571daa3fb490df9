// SPDX-License-Identifier: Apache-2.0

// Command apidiff compares the lab's API with that of Kubernetes. It sends the same generated requests to both, and
// compares the answers, the objects that controllers make, and the watch streams. The other side is a real etcd,
// kube-apiserver and kube-controller-manager of a release, built from its modules.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/release"
	"github.com/viplab/viplab/lab/sandbox"
)

type options struct {
	version string
	seed    uint64
	cases   int
	verbose bool
}

func main() {
	var o options
	flag.StringVar(&o.version, "kubernetes-version", release.Default, "release to build and compare with")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the generated manifests")
	flag.IntVar(&o.cases, "cases", 200, "number of generated cases, beside the fixed ones")
	flag.BoolVar(&o.verbose, "v", false, "print known differences, too")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	unexpected, err := compare(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "apidiff:", err)
		os.Exit(2)
	}
	if unexpected > 0 {
		os.Exit(1)
	}
}

// compare returns the number of differences that are not known.
func compare(ctx context.Context, o options) (int, error) {
	if !sandbox.Inside() { // the sandbox has no network to build with
		for _, c := range commands(o.version) {
			if err := c.Build(ctx, os.Stderr); err != nil {
				return 0, err
			}
		}
	}
	if err := sandbox.Enter(ctx); err != nil {
		return 0, err
	}
	theirs, err := startKubernetes(ctx, o.version)
	if err != nil {
		return 0, err
	}
	defer theirs.stop()
	ours, err := startLab(ctx)
	if err != nil {
		return 0, err
	}
	defer ours.stop()
	began := time.Now()
	j := &judge{theirs: theirs, ours: ours, verbose: o.verbose, out: os.Stdout}
	for _, c := range slices.Concat(protocol(), controllers(), histories(), generate(o.seed, o.cases),
		networking()) {
		if err := j.judge(ctx, c); err != nil {
			return 0, errors.Join(fmt.Errorf("case %s: %w", c.name, err), context.Cause(ctx))
		}
	}
	j.summarize(time.Since(began))
	return j.unexpected, nil
}
