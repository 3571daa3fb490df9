// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
)

const columns = "%-28s %8s %10s %9s %10s %10s %8s %10s %10s %9s\n"

func printHead(w io.Writer) {
	fmt.Fprintf(w, columns, "proxier", "services", "first s", "added ms", "changed ms", "removed ms", "MiB",
		"connect us", "direct us", "stop s")
}

func printRow(w io.Writer, r row) error {
	if r.Failed != "" {
		_, err := fmt.Fprintf(w, "%-28s %8d %s\n", r.Proxier, r.Services, r.Failed)
		return err
	}
	_, err := fmt.Fprintf(w, "%-28s %8d %10.2f %9.1f %10.1f %10.1f %8.1f %10.0f %10.0f %9.2f\n", r.Proxier, r.Services,
		r.First/1000, r.Added, r.Changed, r.Removed, r.Memory, r.Connect, r.Direct, r.Stop/1000)
	return err
}
