// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/viplab/viplab/internal/suite/shrink"
	"github.com/viplab/viplab/lab"
)

// Shrink returns a minimal version of a failing case: without any one of its policies, list elements or fields, it
// would pass or be invalid. Shrink calls fails with valid cases only.
func Shrink(c Case, stack lab.Stack, fails func(Case) (bool, error)) (Case, error) {
	tree, err := treeOf(c.Policies)
	if err != nil {
		return c, err
	}
	c.Blocked = nil // it belongs to the original policies
	next := c
	_, err = shrink.Smallest(tree, 1, func(smaller []any) ([]int, error) {
		var err error
		if next.Policies, err = policiesFrom(smaller[0]); err != nil || len(next.Policies) == 0 {
			return nil, nil // no longer an API object
		}
		if _, err := next.Cluster(stack); err != nil {
			return nil, nil // not a valid one
		}
		failed, err := fails(next)
		if err != nil || !failed {
			return nil, err
		}
		return []int{0}, nil
	}, func(any) { c = next })
	return c, err
}

// policiesFrom decodes policies. An object without a name, namespace or kind is an error.
func policiesFrom(tree any) ([]*networkingv1.NetworkPolicy, error) {
	out, err := shrink.Value[[]*networkingv1.NetworkPolicy](tree)
	if err != nil {
		return nil, err
	}
	for _, p := range out {
		if p.Name == "" || p.Namespace == "" || p.Kind == "" || p.APIVersion == "" {
			return nil, fmt.Errorf("policy %q in namespace %q: not an object", p.Name, p.Namespace)
		}
	}
	return out, nil
}
