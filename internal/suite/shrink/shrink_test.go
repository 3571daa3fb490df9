// SPDX-License-Identifier: Apache-2.0

package shrink

import (
	"errors"
	"reflect"
	"slices"
	"testing"
)

type pair struct {
	A []int `json:"a,omitempty"`
	B []int `json:"b,omitempty"`
}

func treeOf(t *testing.T, pairs []pair) any {
	t.Helper()
	tree, err := Tree(pairs)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// has reports whether a tree has all of the numbers.
func has(tree any, wanted ...int) bool {
	all, err := Value[[]pair](tree)
	var numbers []int
	for _, p := range all {
		numbers = slices.Concat(numbers, p.A, p.B)
	}
	return err == nil && !slices.ContainsFunc(wanted, func(n int) bool { return !slices.Contains(numbers, n) })
}

func those(trees []any, fail func(any) bool) (failing []int) {
	for i, tree := range trees {
		if fail(tree) {
			failing = append(failing, i)
		}
	}
	return failing
}

func TestSmallest(t *testing.T) {
	for _, atOnce := range []int{1, 3, 100} {
		var last any
		tree := treeOf(t, []pair{{A: []int{1, 2, 3}, B: []int{4}}, {A: []int{5}}, {B: []int{6, 7}}})
		smallest, err := Smallest(tree, atOnce, func(smaller []any) ([]int, error) {
			if len(smaller) > atOnce {
				t.Errorf("%d trees at once, want at most %d", len(smaller), atOnce)
			}
			return those(smaller, func(tree any) bool { return has(tree, 2, 7) }), nil
		}, func(tree any) { last = tree })
		if err != nil {
			t.Fatal(err)
		}
		got, err := Value[[]pair](smallest)
		if want := []pair{{A: []int{2}}, {B: []int{7}}}; err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%d at once: got %v, %v, want %v", atOnce, got, err, want)
		}
		if !reflect.DeepEqual(last, smallest) {
			t.Errorf("%d at once: the last tree taken is %v", atOnce, last)
		}
	}
}

func TestManyBranchesAreLeftOutTogether(t *testing.T) {
	list := make([]int, 90)
	for i := range list {
		list[i] = i
	}
	calls := 0
	smallest, err := Smallest(treeOf(t, []pair{{A: list}}), 100, func(smaller []any) ([]int, error) {
		calls++
		return those(smaller, func(tree any) bool { return has(tree, 44) }), nil
	}, func(any) {})
	if got, _ := Value[[]pair](smallest); err != nil || !reflect.DeepEqual(got, []pair{{A: []int{44}}}) || calls > 8 {
		t.Errorf("%v, %v after %d calls, want 44 alone after 8 at most", got, err, calls)
	}
}

func TestWhatFailsOnceIsNotTaken(t *testing.T) {
	failed := false
	smallest, err := Smallest(treeOf(t, []pair{{A: []int{1, 2}}}), 10, func(smaller []any) ([]int, error) {
		if failed {
			return nil, nil
		}
		failed = true
		return []int{0}, nil
	}, func(any) { t.Error("a tree that failed once was taken") })
	if got, _ := Value[[]pair](smallest); err != nil || !reflect.DeepEqual(got, []pair{{A: []int{1, 2}}}) {
		t.Errorf("got %v, %v, want the whole tree", got, err)
	}
}

func TestAnErrorLeavesTheSmallestTreeSoFar(t *testing.T) {
	over, calls := errors.New("over"), 0
	smallest, err := Smallest(treeOf(t, []pair{{A: []int{1}}, {A: []int{2}}}), 1, func([]any) ([]int, error) {
		if calls++; calls == 1 {
			return []int{0}, nil
		}
		return nil, over
	}, func(any) {})
	if got, _ := Value[[]pair](smallest); !errors.Is(err, over) || !reflect.DeepEqual(got, []pair{{A: []int{2}}}) {
		t.Errorf("got %v, %v, want the second pair and the error", got, err)
	}
}
