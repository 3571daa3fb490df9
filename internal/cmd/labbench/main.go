// SPDX-License-Identifier: Apache-2.0

// Command labbench measures the cost of building a lab, and in the same run the least that the kernel takes for a
// network of that shape. Milliseconds depend on the machine more than on the lab; the ratio of the two does not.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/viplab/viplab/internal/cmd/bench"
	"github.com/viplab/viplab/lab/sandbox"
)

func main() { bench.Main(run) }

func run(ctx context.Context) error {
	if err := sandbox.Enter(ctx); err != nil {
		return err
	}
	asJSON := flag.Bool("json", false, "print JSON instead of tables")
	rounds := flag.Int("rounds", 5, "how often each build is measured; the median counts")
	fresh := flag.Int("fresh", 1000, "how many labs of 3 x 3 are built one after the other to look for late or lost "+
		"first packets")
	flag.Parse()
	r, err := measure(ctx, *rounds, *fresh)
	if err != nil {
		return err
	}
	if *asJSON {
		return json.NewEncoder(os.Stdout).Encode(r)
	}
	return r.print(os.Stdout)
}

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
