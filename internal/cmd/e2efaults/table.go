// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/viplab/viplab/internal/suite/prove"
)

// write prints a table in Markdown: theme by theme, how many faults scenarios and specs notice, and which the specs do
// not.
func write(w io.Writer, trials []trial) error {
	fmt.Fprintf(w, "| theme | faults | noticed by scenarios | noticed by specs | not noticed by specs |\n"+
		"|---|---|---|---|---|\n")
	var all row
	for len(trials) > 0 {
		theme := row{name: trials[0].theme}
		for ; len(trials) > 0 && trials[0].theme == theme.name; trials = trials[1:] {
			theme.add(trials[0])
		}
		fmt.Fprintf(w, "%s %s |\n", theme, strings.Join(theme.missed, ", "))
		all.name, all.faults = "all", all.faults+theme.faults
		all.scenarios, all.specs = all.scenarios+theme.scenarios, all.specs+theme.specs
		all.none += theme.none
	}
	_, err := fmt.Fprintf(w, "%s %d without a result |\n", all, all.none)
	return err
}

// row is a row of the table.
type row struct {
	name                           string
	faults, scenarios, specs, none int
	missed                         []string // by the specs
}

func (r row) String() string {
	return fmt.Sprintf("| %s | %d | %d | %d |", r.name, r.faults, r.scenarios, r.specs)
}

func (r *row) add(t trial) {
	r.faults++
	if t.prove == prove.Caught {
		r.scenarios++
	}
	switch {
	case t.err != nil:
		r.none++
		r.missed = append(r.missed, t.fault.Name+" (no result)")
	case t.spec != "":
		r.specs++
	default:
		r.missed = append(r.missed, t.fault.Name)
	}
}
