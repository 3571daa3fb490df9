// SPDX-License-Identifier: Apache-2.0

package catalogue

import (
	"bytes"
	"maps"
	"slices"
	"strings"
)

// Matching returns the groups with only those rows, and only those scenarios of a row, whose ids keep accepts. Groups
// without such a row are left out. It is for a few of them: it does not decode the other rows.
func Matching(keep func(id string) bool) ([]Group, error) {
	groups, err := parse(abridged(text, keep))
	lacks := func(r Behaviour) bool {
		maps.DeleteFunc(r.Scenarios, func(id string, _ Part) bool { return !keep(id) })
		return r.Scenarios != nil && len(r.Scenarios) == 0
	}
	for i, g := range groups {
		groups[i].Rows = slices.DeleteFunc(g.Rows, lacks)
	}
	return slices.DeleteFunc(groups, func(g Group) bool { return len(g.Rows) == 0 }), err
}

// abridged returns the lines of the file without the rows in which keep accepts no id.
func abridged(text []byte, keep func(id string) bool) []byte {
	var out, row []byte
	kept := false
	end := func() {
		if kept {
			out = append(out, row...)
		}
		row, kept = nil, false
	}
	for line := range bytes.Lines(text) {
		id, isRow := bytes.CutPrefix(line, []byte("  - id: "))
		if isRow || line[0] == '-' {
			end()
		}
		if !isRow && row == nil {
			out = append(out, line...)
			continue
		}
		row = append(row, line...)
		if !isRow {
			id = partID(line)
		}
		kept = kept || id != nil && keep(strings.TrimSpace(string(id)))
	}
	end()
	return out
}

// partID returns the id that a line within a row begins a part with, nil if it does not.
func partID(line []byte) []byte {
	id, ok := bytes.CutPrefix(line, []byte("      "))
	if !ok || id[0] == ' ' {
		return nil
	}
	id, _ = bytes.CutSuffix(bytes.TrimSpace(id), []byte(":"))
	return id
}
