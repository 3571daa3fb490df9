// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	netutils "k8s.io/utils/net"
)

// Matches reports whether a label selector matches labels: every label of matchLabels is present with its value, and
// every expression holds. An empty selector matches everything.
func Matches(s *metav1.LabelSelector, labels map[string]string) bool {
	for key, want := range s.MatchLabels {
		if has, ok := labels[key]; !ok || has != want {
			return false
		}
	}
	return !slices.ContainsFunc(s.MatchExpressions,
		func(r metav1.LabelSelectorRequirement) bool { return !holds(r, labels) })
}

// holds reports whether an expression matches labels. NotIn also matches labels without the key.
func holds(r metav1.LabelSelectorRequirement, labels map[string]string) bool {
	has, carried := labels[r.Key]
	in := carried && slices.Contains(r.Values, has)
	switch r.Operator {
	case metav1.LabelSelectorOpIn:
		return in
	case metav1.LabelSelectorOpNotIn:
		return !in
	case metav1.LabelSelectorOpExists:
		return carried
	case metav1.LabelSelectorOpDoesNotExist:
		return !carried
	}
	return false // the API accepts no other operator
}

// contains reports whether a range contains an address of the same family. In old objects, ranges may have host bits,
// which are ignored, and leading zeros, which are decimal.
func contains(cidr string, a netip.Addr) bool {
	_, block, err := netutils.ParseCIDRSloppy(cidr)
	return err == nil && block.Contains(a.AsSlice())
}
