// SPDX-License-Identifier: Apache-2.0

package oracle_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/viplab/viplab/internal/suite/netpol/oracle"
)

// The test compares the oracle's selectors with those of the API server.
func TestMatchesAsTheAPIServerDoes(t *testing.T) {
	key := rapid.SampledFrom([]string{"a", "b", "c"})
	value := rapid.SampledFrom([]string{"", "1", "2"})
	expression := rapid.Custom(func(t *rapid.T) metav1.LabelSelectorRequirement {
		r := metav1.LabelSelectorRequirement{
			Key: key.Draw(t, "key"),
			Operator: rapid.SampledFrom([]metav1.LabelSelectorOperator{
				metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists,
				metav1.LabelSelectorOpDoesNotExist,
			}).Draw(t, "operator"),
		}
		if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
			r.Values = rapid.SliceOfN(value, 1, 3).Draw(t, "values")
		}
		return r
	})
	rapid.Check(t, func(t *rapid.T) {
		s := &metav1.LabelSelector{
			MatchLabels:      rapid.MapOfN(key, value, 0, 2).Draw(t, "matchLabels"),
			MatchExpressions: rapid.SliceOfN(expression, 0, 3).Draw(t, "matchExpressions"),
		}
		has := rapid.MapOfN(key, value, 0, 3).Draw(t, "labels")
		theirs, err := metav1.LabelSelectorAsSelector(s)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := oracle.Matches(s, has), theirs.Matches(labels.Set(has)); got != want {
			t.Errorf("%s on %v: %t, the API server says %t", metav1.FormatLabelSelector(s), has, got, want)
		}
	})
}
