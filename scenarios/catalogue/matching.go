// SPDX-License-Identifier: Apache-2.0

package catalogue

import (
	"bytes"
	"maps"
	"slices"
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

// Each row and each group of the file begins on a line of its own.
var (
	groupBegins = []byte("\n- group: ")
	rowBegins   = []byte("\n  - id: ")
)

// abridged returns the file without the rows in which keep accepts no id.
func abridged(text []byte, keep func(id string) bool) []byte {
	var out []byte
	for len(text) > 0 {
		group := cut(&text, groupBegins)
		out = append(out, cut(&group, rowBegins)...)
		for len(group) > 0 {
			if row := cut(&group, rowBegins); slices.ContainsFunc(idsOf(row), keep) {
				out = append(out, row...)
			}
		}
	}
	return out
}

// cut removes and returns what comes before the next beginning, all if there is none.
func cut(text *[]byte, begins []byte) []byte {
	end := len(*text)
	if i := bytes.Index((*text)[1:], begins); i >= 0 {
		end = i + 1
	}
	part := (*text)[:end]
	*text = (*text)[end:]
	return part
}

// idsOf returns the id of a row, and those of its scenarios if it has several.
func idsOf(row []byte) []string {
	first, rest, _ := bytes.Cut(row[len(rowBegins):], []byte("\n"))
	ids := []string{string(first)}
	if _, parts, ok := bytes.Cut(rest, []byte("    scenarios:\n")); ok {
		for line := range bytes.Lines(parts) {
			id, isPart := bytes.CutPrefix(line, []byte("      "))
			if isPart && id[0] != ' ' {
				ids = append(ids, string(bytes.TrimSuffix(bytes.TrimSpace(id), []byte(":"))))
			}
		}
	}
	return ids
}
