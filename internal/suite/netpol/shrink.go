// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/viplab/viplab/lab"
)

// Shrink makes the policies of a case that fails as small as they can be and still fail: none of them, no element of
// any list and no field can be left out of what it returns. Fails is asked about valid cases alone.
//
// A policy is taken as the tree that its JSON is, and whole branches are tried before twigs.
func Shrink(c Case, stack lab.Stack, fails func(Case) (bool, error)) (Case, error) {
	tree, err := treeOf(c.Policies)
	if err != nil {
		return c, err
	}
	c.Blocked = nil // it is of the policies as they were
	tried := map[string]bool{}
	for depth := 1; ; {
		smaller, found, err := shrinkOnce(c, tree, depth, stack, tried, fails)
		switch {
		case err != nil:
			return c, err
		case found:
			if tree, err = treeOf(smaller.Policies); err != nil {
				return c, err
			}
			c, depth = smaller, 1
		case depth > depthOf(tree):
			return c, nil
		default:
			depth++
		}
	}
}

// shrinkOnce leaves one branch of a depth out. What has been tried before is not tried again.
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
			continue // not an API object any more
		}
		if _, err := next.judge(stack); err != nil {
			continue // not a valid one
		}
		if failed, err := fails(next); err != nil || failed {
			return next, failed, err
		}
	}
	return c, false, nil
}

// policiesFrom reads policies, and takes nothing for one that would be written otherwise.
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

// without are all trees that lack one branch of a depth: 1 is an element of the root.
func without(tree any, depth int) []any {
	var out []any
	switch t := tree.(type) {
	case []any:
		for i, child := range t {
			if depth == 1 {
				out = append(out, slices.Concat(t[:i], t[i+1:]))
				continue
			}
			for _, smaller := range without(child, depth-1) {
				now := slices.Clone(t)
				now[i] = smaller
				out = append(out, now)
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(t)) {
			now := maps.Clone(t)
			if depth == 1 {
				delete(now, key)
				out = append(out, now)
				continue
			}
			for _, smaller := range without(t[key], depth-1) {
				now := maps.Clone(t)
				now[key] = smaller
				out = append(out, now)
			}
		}
	}
	return out
}

func depthOf(tree any) int {
	deepest := 0
	switch t := tree.(type) {
	case []any:
		for _, child := range t {
			deepest = max(deepest, 1+depthOf(child))
		}
	case map[string]any:
		for _, child := range t {
			deepest = max(deepest, 1+depthOf(child))
		}
	}
	return deepest
}
