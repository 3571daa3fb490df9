// SPDX-License-Identifier: Apache-2.0

// Package shrink makes a failing case as small as possible. It treats a case as a tree of JSON.
package shrink

import (
	"encoding/json"
	"iter"
	"maps"
	"slices"
)

// Fails gets up to atOnce trees and returns the indexes of those that fail, in ascending order. An error ends the
// search.
type Fails func(smaller []any) (failing []int, err error)

// Smallest returns a minimal tree that fails: without any one of its branches, it would not. It tries to leave out
// large branches first, and no branch of a tree twice. With atOnce above 1, a tree must fail twice to be taken, and
// several branches that can be left out each are left out together if that fails as well. Smallest calls taken with
// each tree that it goes on with. It returns the error of fails with the smallest tree so far.
func Smallest(tree any, atOnce int, fails Fails, taken func(tree any)) (any, error) {
	s := search{fails: fails, atOnce: atOnce, tried: map[string]bool{}}
	for again := true; again; {
		again = false
		for depth := 1; depth <= depthOf(tree); depth++ {
			smaller, err := s.at(tree, depth)
			if err != nil {
				return tree, err
			}
			if smaller != nil { // which may have more branches of this depth
				tree, again, depth = smaller, true, depth-1
				taken(tree)
			}
		}
	}
	return tree, nil
}

// search is a search for the smallest tree that fails.
type search struct {
	fails  Fails
	atOnce int
	tried  map[string]bool // the trees as text
}

// at returns a smaller tree that lacks one or more branches of a depth, or nil.
func (s *search) at(tree any, depth int) (any, error) {
	for some := range slices.Chunk(s.untried(tree, branches(tree, depth)), s.atOnce) {
		failing, err := s.fails(each(tree, some))
		switch {
		case err != nil:
			return nil, err
		case len(failing) > 0 && s.atOnce == 1:
			return remove(tree, some...), nil
		case len(failing) > 0:
			var found []branch
			for _, i := range failing {
				found = append(found, some[i])
			}
			if smaller, err := s.together(tree, found); smaller != nil || err != nil {
				return smaller, err
			}
		}
	}
	return nil, nil
}

// together returns the tree without as many of the branches as possible, or nil if no such tree fails. Without each of
// the branches it has failed before.
func (s *search) together(tree any, found []branch) (any, error) {
	var trees []any
	for n := len(found); n > 1; n = (n + 1) / 2 {
		for some := range slices.Chunk(found, n) {
			if len(some) > 1 {
				trees = append(trees, remove(tree, some...))
			}
		}
	}
	trees = append(trees, each(tree, found)...)
	for some := range slices.Chunk(trees, s.atOnce) {
		failing, err := s.fails(some)
		if err != nil {
			return nil, err
		}
		if len(failing) > 0 {
			return some[failing[0]], nil
		}
	}
	return nil, nil
}

// untried returns the branches without which the tree is one that was not tried, and adds it to those that were.
func (s *search) untried(tree any, all []branch) []branch {
	return slices.DeleteFunc(all, func(b branch) bool {
		text, err := json.Marshal(remove(tree, b))
		is := err == nil && s.tried[string(text)]
		s.tried[string(text)] = true
		return is
	})
}

// branch is the path to a part of a tree: names in objects, and indexes in lists.
type branch []any

// branches returns all branches of a depth: 1 is an element of the root.
func branches(tree any, depth int) (out []branch) {
	for key, child := range children(tree) {
		if depth == 1 {
			out = append(out, branch{key})
			continue
		}
		for _, b := range branches(child, depth-1) {
			out = append(out, append(branch{key}, b...))
		}
	}
	return out
}

// each returns a tree without each of the branches.
func each(tree any, all []branch) (out []any) {
	for _, b := range all {
		out = append(out, remove(tree, b))
	}
	return out
}

// remove returns a copy of a tree without branches of one depth, which must be in the order of branches.
func remove(tree any, all ...branch) any {
	for _, b := range slices.Backward(all) { // so that the indexes of those before stay right
		tree = without(tree, b)
	}
	return tree
}

// without returns a copy of a tree without a branch.
func without(tree any, b branch) any {
	switch key := b[0].(type) {
	case int:
		list := slices.Clone(tree.([]any))
		if len(b) == 1 {
			return slices.Delete(list, key, key+1)
		}
		list[key] = without(list[key], b[1:])
		return list
	case string:
		object := maps.Clone(tree.(map[string]any))
		if delete(object, key); len(b) > 1 {
			object[key] = without(tree.(map[string]any)[key], b[1:])
		}
		return object
	}
	return tree
}

// children are the elements of a list by index, or those of an object by name, in order.
func children(tree any) iter.Seq2[any, any] {
	return func(yield func(any, any) bool) {
		list, _ := tree.([]any)
		for i, child := range list {
			if !yield(i, child) {
				return
			}
		}
		object, _ := tree.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(object)) {
			if !yield(name, object[name]) {
				return
			}
		}
	}
}

func depthOf(tree any) (deepest int) {
	for _, child := range children(tree) {
		deepest = max(deepest, 1+depthOf(child))
	}
	return deepest
}

// Tree returns a value as a tree of JSON.
func Tree(v any) (tree any, err error) {
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &tree)
	}
	return tree, err
}

// Value decodes a tree.
func Value[T any](tree any) (v T, err error) {
	text, err := json.Marshal(tree)
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	return v, err
}
