// SPDX-License-Identifier: Apache-2.0

// Package guess finds the word that a person has probably meant.
package guess

import "strings"

// Closest returns the known word that is closest to a misspelt one, whatever the case of its letters, or "" if each
// differs by more than two letters: a mistake of three letters is another word.
func Closest(word string, known []string) string {
	best, distance := "", 3
	for _, k := range known {
		if d := editDistance(strings.ToLower(word), strings.ToLower(k)); d < distance {
			best, distance = k, d
		}
	}
	return best
}

// editDistance counts the letters to insert, delete or replace to make b of a.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
