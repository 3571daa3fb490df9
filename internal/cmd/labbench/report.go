// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// report is all that was measured. Times are in milliseconds, those of pieces in microseconds.
type report struct {
	Builds []buildRow `json:"builds"`
	Pieces []pieceRow `json:"pieces"`
	Proof  proofRow   `json:"proof"`
	Fresh  freshRow   `json:"fresh"`
}

type buildRow struct {
	Nodes   int     `json:"nodes"`
	Pods    int     `json:"pods"`
	Lab     string  `json:"lab"`
	Median  float64 `json:"median_ms"`
	Min     float64 `json:"min_ms"`
	Max     float64 `json:"max_ms"`
	Ratio   float64 `json:"ratio"` // of the medians, to the floor of the same size
	CPU     float64 `json:"cpu_ms"`
	Close   float64 `json:"close_ms"`
	Drained float64 `json:"drained_ms"` // until the kernel has freed everything
}

type pieceRow struct {
	Piece string  `json:"piece"`
	Us    float64 `json:"us"`
}

type proofRow struct {
	Pairs  int     `json:"pairs"`
	Lost   int     `json:"lost"`
	Build  float64 `json:"build_ms"`
	Proof  float64 `json:"proof_ms"`
	Median float64 `json:"median_ms"` // of both together
}

type freshRow struct {
	Labs    int     `json:"labs"`
	Packets int     `json:"packets"`
	Late    int     `json:"late"` // after more than 100 ms
	Lost    int     `json:"lost"`
	Worst   float64 `json:"worst_ms"`
	Build   float64 `json:"build_ms"` // median, while the kernel takes the labs before apart
}

func (r report) print(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "nodes x pods\tlab\tbuild ms\tmin\tmax\tx floor\tCPU ms\tclose ms\tfreed after ms\t")
	for _, b := range r.Builds {
		fmt.Fprintf(w, "%d x %d\t%s\t%.1f\t%.1f\t%.1f\t%.2f\t%.1f\t%.2f\t%.0f\t\n",
			b.Nodes, b.Pods, b.Lab, b.Median, b.Min, b.Max, b.Ratio, b.CPU, b.Close, b.Drained)
	}
	fmt.Fprintln(w, "\t")
	fmt.Fprintln(w, "piece\tmicroseconds\t")
	for _, p := range r.Pieces {
		fmt.Fprintf(w, "%s\t%.1f\t\n", p.Piece, p.Us)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(to, "\n10 x 10 built in %.0f ms and all %d pairs of pods proved in %.0f ms: %.0f ms, %d lost\n",
		r.Proof.Build, r.Proof.Pairs, r.Proof.Proof, r.Proof.Median, r.Proof.Lost)
	_, err := fmt.Fprintf(to, "%d fresh labs of 3 x 3, %.0f ms each: of %d first packets %d late (over %v), %d lost; "+
		"the slowest took %.1f ms\n",
		r.Fresh.Labs, r.Fresh.Build, r.Fresh.Packets, r.Fresh.Late, late, r.Fresh.Lost, r.Fresh.Worst)
	return err
}
