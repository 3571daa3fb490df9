// SPDX-License-Identifier: Apache-2.0

// Package dice draws the parts of generated cases. The same seed and number give the same draws.
package dice

import "math/rand/v2"

// Dice draws numbers.
type Dice struct{ *rand.Rand }

// New returns the dice of a case.
func New(seed, number uint64) Dice { return Dice{rand.New(rand.NewPCG(seed, number))} }

// Chance reports true in one of n draws.
func (d Dice) Chance(n int) bool { return d.IntN(n) == 0 }

// OneOf returns one of the values. A value that occurs more often is more likely.
func OneOf[T any](d Dice, values ...T) T { return values[d.IntN(len(values))] }

// Some returns between least and most of the values, in any order, each at most once.
func Some[T any](d Dice, least, most int, values ...T) []T {
	out := make([]T, len(values))
	for to, from := range d.Perm(len(values)) {
		out[to] = values[from]
	}
	return out[:min(least+d.IntN(most-least+1), len(out))]
}

// List returns a list that is nil, empty, or has one to most elements.
func List[T any](d Dice, most int, make func() T) []T {
	switch d.IntN(8) {
	case 0:
		return nil
	case 1:
		return []T{}
	}
	var out []T
	for range 1 + d.IntN(most) {
		out = append(out, make())
	}
	return out
}
