// SPDX-License-Identifier: Apache-2.0

// Command bench measures what a lab costs, beside the least that the kernel would take for a network of that shape, in
// the same run: a figure in milliseconds says more about the machine than about the lab, a ratio does not.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/viplab/viplab/lab/sandbox"
)

func main() {
	if err := sandbox.Enter(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	asJSON := flag.Bool("json", false, "print JSON instead of tables")
	rounds := flag.Int("rounds", 5, "how often each build is measured; the median counts")
	fresh := flag.Int("fresh", 1000, "how many labs of 3 x 3 are built one after the other to look for late or lost "+
		"first packets")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r, err := measure(ctx, *rounds, *fresh)
	if err == nil && *asJSON {
		err = json.NewEncoder(os.Stdout).Encode(r)
	} else if err == nil {
		err = r.print(os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// measure runs everything.
func measure(ctx context.Context, rounds, fresh int) (r report, err error) {
	drain, err := newDrain()
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, drain.close()) }()
	if r.Pieces, err = measurePieces(ctx); err != nil {
		return r, err
	}
	for _, s := range sizes {
		rows, err := measureBuilds(ctx, drain, s, rounds)
		if err != nil {
			return r, fmt.Errorf("%s: %w", s, err)
		}
		r.Builds = append(r.Builds, rows...)
	}
	if r.Proof, err = measureProof(ctx, drain, size{10, 10}, rounds); err != nil {
		return r, err
	}
	if err := drain.wait(); err != nil {
		return r, err
	}
	r.Fresh, err = measureFresh(ctx, fresh)
	return r, err
}
