// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/viplab/viplab/lab"
)

// Shrink returns a minimal version of a failing case: without any one of its policies, list elements or fields, it
// would pass or be invalid. Shrink calls fails with valid cases only.
//
// It treats policies as trees of JSON, and tries to leave out large branches first.
func Shrink(c Case, stack lab.Stack, fails func(Case) (bool, error)) (Case, error) {
	tree, err := treeOf(c.Policies)
	if err != nil {
		return c, err
	}
	c.Blocked = nil // it belongs to the original policies
	tried := map[string]bool{}
	for depth := 1; depth <= depthOf(tree); depth++ {
		smaller, found, err := shrinkOnce(c, tree, depth, stack, tried, fails)
		if err == nil && found {
			c, depth = smaller, 0
			tree, err = treeOf(c.Policies)
		}
		if err != nil {
			return c, err
		}
	}
	return c, nil
}

// shrinkOnce removes one branch at a depth. It does not try the same policies twice.
func shrinkOnce(c Case, tree any, depth int, stack lab.Stack, tried map[string]bool,
	fails func(Case) (bool, error)) (Case, bool, error) {
	for _, t := range without(tree, depth) {
		text, err := json.Marshal(t)
		if err != nil {
			return c, false, err
		}
		if tried[string(text)] {
			continue
		}
		tried[string(text)] = true
		next := c
		if next.Policies, err = policiesFrom(text); err != nil || len(next.Policies) == 0 {
			continue // no longer an API object
		}
		if _, err := next.Cluster(stack); err != nil {
			continue // not a valid one
		}
		if failed, err := fails(next); err != nil || failed {
			return next, failed, err
		}
	}
	return c, false, nil
}

// policiesFrom decodes policies. An object without a name, namespace or kind is an error.
func policiesFrom(text []byte) (out []*networkingv1.NetworkPolicy, err error) {
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, err
	}
	for _, p := range out {
		if p.Name == "" || p.Namespace == "" || p.Kind == "" || p.APIVersion == "" {
			return nil, fmt.Errorf("policy %q in namespace %q: not an object", p.Name, p.Namespace)
		}
	}
	return out, nil
}

// without returns all trees that lack one branch of a depth: 1 is an element of the root.
func without(tree any, depth int) (out []any) {
	for key, child := range children(tree) {
		if depth == 1 {
			out = append(out, with(tree, key))
			continue
		}
		for _, smaller := range without(child, depth-1) {
			out = append(out, with(tree, key, smaller))
		}
	}
	return out
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

// with returns a copy of a tree with other values, one or none, in the place of a child.
func with(tree, key any, values ...any) any {
	if i, ok := key.(int); ok {
		list := tree.([]any)
		return slices.Concat(list[:i], values, list[i+1:])
	}
	object := maps.Clone(tree.(map[string]any))
	delete(object, key.(string))
	for _, v := range values {
		object[key.(string)] = v
	}
	return object
}

func depthOf(tree any) (deepest int) {
	for _, child := range children(tree) {
		deepest = max(deepest, 1+depthOf(child))
	}
	return deepest
}
