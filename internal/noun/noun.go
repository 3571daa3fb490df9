// SPDX-License-Identifier: Apache-2.0

// Package noun makes nouns agree with their numbers.
package noun

import "fmt"

// Count returns a number with its noun: "1 row", "2 rows".
func Count(n int, noun string) string { return fmt.Sprintf("%d %s", n, Plural(n, noun)) }

// Plural returns the noun as it stands behind a number. Its plural ends with an s.
func Plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}
