// SPDX-License-Identifier: Apache-2.0

// Command proxierbench measures proxiers that serve many Services: the first sync; a change of one Service among many,
// from the change of the cluster's state to the first packet that shows it; memory; and a connection through the last
// Service. It measures kube-proxy in the same run on the same machine.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/viplab/viplab/internal/cmd/bench"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/proxiers/kubeproxy"
)

func main() { bench.Main(run) }

func run(ctx context.Context) error {
	names := flag.String("proxiers", strings.Join(defaultSubjects(), ","),
		"what to measure, of "+strings.Join(subjectNames(), ", "))
	sizes := flag.String("sizes", "100,1000,10000", "numbers of Services, with five endpoints each")
	rounds := flag.Int("rounds", 5, "how often a change is measured; the median counts")
	asJSON := flag.Bool("json", false, "print JSON, a line for each cell, instead of a table")
	flag.Parse()
	subjects, err := findSubjects(strings.Split(*names, ","))
	numbers, wrong := parseSizes(*sizes)
	if err := errors.Join(err, wrong); err != nil {
		return err
	}
	if !sandbox.Inside() {
		for _, s := range subjects {
			if err := kubeproxy.Prepare(ctx, s.proxier, os.Stderr); err != nil {
				return err
			}
		}
	}
	if err := sandbox.Enter(ctx); err != nil {
		return err
	}
	print := printRow
	if *asJSON {
		print = func(w io.Writer, r row) error { return json.NewEncoder(w).Encode(r) }
	} else {
		printHead(os.Stdout)
	}
	for _, n := range numbers {
		for _, s := range subjects {
			r, err := measure(ctx, s, n, *rounds)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				r.Failed = err.Error() // the others are measured all the same
			}
			if err := print(os.Stdout, r); err != nil {
				return err
			}
		}
	}
	return nil
}

func parseSizes(list string) ([]int, error) {
	var out []int
	for _, word := range strings.Split(list, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || n > maxServices {
			return nil, fmt.Errorf("-sizes: %q: want numbers from 1 to %d", word, maxServices)
		}
		out = append(out, n)
	}
	return out, nil
}
