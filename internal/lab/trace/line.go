// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"slices"
	"strings"
)

// Line returns the tuple as a line of a table, with * before the columns that are named.
func (t Tuple) Line(changed []string) string {
	var b strings.Builder
	for i, text := range t.fields() {
		b.WriteString("| ")
		if slices.Contains(changed, columns[i]) {
			b.WriteString("*")
		}
		b.WriteString(text + " ")
	}
	return b.String() + "|"
}
