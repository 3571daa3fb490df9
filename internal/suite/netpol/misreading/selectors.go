// SPDX-License-Identifier: Apache-2.0

package misreading

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/internal/suite/netpol/oracle"
)

type (
	selector    = metav1.LabelSelector
	requirement = metav1.LabelSelectorRequirement
)

// never is a requirement that no object meets, because no label has this key.
var never = requirement{Key: "no-object-has-this", Operator: metav1.LabelSelectorOpExists}

// eachSelector returns a reading that replaces every selector of a policy.
func eachSelector(name string, edit func(*selector)) Reading {
	return each(name, func(p *Policy) {
		edit(&p.Spec.PodSelector)
		for peers := range oracle.EachRule(p) {
			for _, x := range *peers {
				for _, s := range []*selector{x.PodSelector, x.NamespaceSelector} {
					if s != nil {
						edit(s)
					}
				}
			}
		}
	})
}

// eachRequirement returns a reading that replaces every expression with one of the operators.
func eachRequirement(name string, op metav1.LabelSelectorOperator, edit func(requirement) []requirement) Reading {
	edit = replace(func(r requirement) bool { return r.Operator == op }, edit)
	return eachSelector(name, func(s *selector) { s.MatchExpressions = all(s.MatchExpressions, edit) })
}

func ignored(requirement) []requirement { return nil }

func selectors() []Reading {
	return []Reading{
		eachRequirement("NotIn-needs-key", metav1.LabelSelectorOpNotIn, func(r requirement) []requirement {
			return []requirement{r, {Key: r.Key, Operator: metav1.LabelSelectorOpExists}}
		}),
		eachRequirement("NotIn-values-ORed", metav1.LabelSelectorOpNotIn,
			drop(func(r requirement) bool { return len(r.Values) > 1 })), // every value differs from one of them
		eachRequirement("NotIn-is-In", metav1.LabelSelectorOpNotIn,
			change(func(r *requirement) { r.Operator = metav1.LabelSelectorOpIn })),
		eachRequirement("NotIn-ignored", metav1.LabelSelectorOpNotIn, ignored),
		eachRequirement("In-first-value-only", metav1.LabelSelectorOpIn,
			change(func(r *requirement) { r.Values = first(r.Values, 1) })),
		eachRequirement("In-is-Exists", metav1.LabelSelectorOpIn,
			change(func(r *requirement) { *r = requirement{Key: r.Key, Operator: metav1.LabelSelectorOpExists} })),
		eachRequirement("Exists-always-true", metav1.LabelSelectorOpExists, ignored),
		eachRequirement("DoesNotExist-ignored", metav1.LabelSelectorOpDoesNotExist, ignored),
		eachSelector("matchExpressions-ignored", func(s *selector) { s.MatchExpressions = nil }),
		eachSelector("only-first-matchExpression",
			func(s *selector) { s.MatchExpressions = first(s.MatchExpressions, 1) }),
		eachSelector("matchLabels-ignored", func(s *selector) { s.MatchLabels = nil }),
		eachSelector("matchLabels-ignored-when-expressions", func(s *selector) {
			if len(s.MatchExpressions) > 0 {
				s.MatchLabels = nil
			}
		}),
		eachSelector("only-first-matchLabel", func(s *selector) {
			for _, key := range slices.Sorted(maps.Keys(s.MatchLabels))[min(1, len(s.MatchLabels)):] {
				delete(s.MatchLabels, key)
			}
		}),
		eachSelector("empty-selector-matches-none", func(s *selector) {
			if len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
				s.MatchExpressions = []requirement{never}
			}
		}),
		eachPeer("requirements-ORed", anyRequirement),
	}
}

// anyRequirement returns peers that match if any one expression of a selector matches.
func anyRequirement(p peer) []peer {
	for _, s := range []*selector{p.NamespaceSelector, p.PodSelector} {
		if s == nil || len(s.MatchExpressions) < 2 {
			continue
		}
		var now []peer
		for i := range s.MatchExpressions {
			one := p.DeepCopy()
			part := one.PodSelector
			if s == p.NamespaceSelector {
				part = one.NamespaceSelector
			}
			part.MatchExpressions = s.MatchExpressions[i : i+1]
			now = append(now, *one)
		}
		return now
	}
	return []peer{p}
}
