// SPDX-License-Identifier: Apache-2.0

// Command bench measures what it costs proxiers to serve many Services: how long the first sync takes, and a change of
// one Service among many, from the moment it is in the cluster's state to the first packet that shows it; memory; and
// what a connection through the last of the Services costs. kube-proxy is measured in the same run, on the same
// machine.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"

	"github.com/viplab/viplab/lab/sandbox"
)

func main() {
	if err := run(os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(stdout, stderr io.Writer) error {
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if !sandbox.Inside() {
		for _, s := range subjects {
			if err := s.prepare(ctx, stderr); err != nil {
				return err
			}
		}
	}
	if err := sandbox.Enter(); err != nil {
		return err
	}
	print := printRow
	if *asJSON {
		print = func(w io.Writer, r row) error { return json.NewEncoder(w).Encode(r) }
	} else {
		printHead(stdout)
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
			if err := print(stdout, r); err != nil {
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
