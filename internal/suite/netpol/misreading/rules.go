// SPDX-License-Identifier: Apache-2.0

package misreading

import (
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/internal/suite/netpol/oracle"
)

// eachUntyped returns a reading that changes only policies without types, which the API defaults.
func eachUntyped(name string, ingress, egress func(*Policy) bool) Reading {
	return each(name, func(p *Policy) {
		if len(p.Spec.PolicyTypes) == 0 {
			setTypes(p, ingress(p), egress(p))
		}
	})
}

func yes(*Policy) bool { return true }
func no(*Policy) bool  { return false }

func listsIngress(p *Policy) bool { return len(p.Spec.Ingress) > 0 || len(p.Spec.Egress) == 0 }
func listsEgress(p *Policy) bool  { return len(p.Spec.Egress) > 0 }

// setTypes sets the types of the policy. Types cannot be empty, so without types the policy selects no pod instead.
func setTypes(p *Policy, ingress, egress bool) {
	p.Spec.PolicyTypes = nil
	if ingress {
		p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, in)
	}
	if egress {
		p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, out)
	}
	if !ingress && !egress {
		p.Spec.PolicyTypes = []networkingv1.PolicyType{in}
		p.Spec.PodSelector = selector{MatchExpressions: []requirement{never}}
	}
}

// typesOf returns the types of a policy, with the API's defaults.
func typesOf(p *Policy) (ingress, egress bool) {
	_, ingress = oracle.Rules(p, in)
	_, egress = oracle.Rules(p, out)
	return ingress, egress
}

func types() []Reading {
	return []Reading{
		eachUntyped("default-types-ingress-only", yes, no),
		eachUntyped("default-types-only-listed-rules", listsIngress, listsEgress),
		eachUntyped("default-types-egress-if-key-present", yes, func(p *Policy) bool { return p.Spec.Egress != nil }),
		eachUntyped("default-types-both", yes, yes),
		each("types-inferred-from-rules", func(p *Policy) { setTypes(p, listsIngress(p), listsEgress(p)) }),
		each("only-first-policyType", func(p *Policy) { p.Spec.PolicyTypes = first(p.Spec.PolicyTypes, 1) }),
		each("ingress-policy-isolates-egress", func(p *Policy) {
			if ingress, egress := typesOf(p); ingress && !egress {
				setTypes(p, true, true)
				p.Spec.Egress = nil
			}
		}),
		each("egress-not-implemented", func(p *Policy) { ingress, _ := typesOf(p); setTypes(p, ingress, false) }),
		each("ingress-not-implemented", func(p *Policy) { _, egress := typesOf(p); setTypes(p, false, egress) }),
		each("directions-swapped", func(p *Policy) {
			ingress, egress := typesOf(p)
			was := p.Spec
			p.Spec.Ingress = all(was.Egress, func(r egressRule) []ingressRule {
				return []ingressRule{{From: r.To, Ports: r.Ports}}
			})
			p.Spec.Egress = all(was.Ingress, func(r ingressRule) []egressRule {
				return []egressRule{{To: r.From, Ports: r.Ports}}
			})
			setTypes(p, egress, ingress)
		}),
		each("isolation-only-if-rules", func(p *Policy) {
			ingress, egress := typesOf(p)
			setTypes(p, ingress && len(p.Spec.Ingress) > 0, egress && len(p.Spec.Egress) > 0)
		}),
		each("empty-rules-means-allow", func(p *Policy) {
			ingress, egress := typesOf(p)
			setTypes(p, ingress, egress)
			if len(p.Spec.Ingress) == 0 {
				p.Spec.Ingress = make([]ingressRule, 1)
			}
			if len(p.Spec.Egress) == 0 {
				p.Spec.Egress = make([]egressRule, 1)
			}
		}),
	}
}

func rules() []Reading {
	return []Reading{
		each("only-first-rule", func(p *Policy) {
			p.Spec.Ingress, p.Spec.Egress = first(p.Spec.Ingress, 1), first(p.Spec.Egress, 1)
		}),
		eachRule("empty-peers-matches-none", func(r *rule) bool { return r.Peers == nil || len(r.Peers) > 0 }),
		eachRule("empty-ports-matches-none", func(r *rule) bool { return r.Ports == nil || len(r.Ports) > 0 }),
		eachRule("only-first-peer", func(r *rule) bool { r.Peers = first(r.Peers, 1); return true }),
		eachRule("only-first-port", func(r *rule) bool { r.Ports = first(r.Ports, 1); return true }),
		eachRule("multiport-first-15", func(r *rule) bool {
			slots := 0
			r.Ports = all(r.Ports, drop(func(p port) bool {
				if slots++; p.EndPort != nil {
					slots++
				}
				return slots > 15
			}))
			return true
		}),
		each("ports-and-peers-ORed", func(p *Policy) {
			p.Spec.Ingress = all(p.Spec.Ingress, replace(
				func(r ingressRule) bool { return len(r.From) > 0 && len(r.Ports) > 0 },
				func(r ingressRule) []ingressRule { return []ingressRule{{From: r.From}, {Ports: r.Ports}} }))
		}),
		{Name: "policy-ns-ignored", Policies: func(c *oracle.Cluster, given []*Policy) []*Policy {
			var now []*Policy
			for _, p := range given {
				for ns := range c.Namespaces {
					one := p.DeepCopy()
					one.Namespace, one.Name = ns, p.Namespace+"-"+p.Name
					now = append(now, one)
				}
			}
			return now
		}},
		{Name: "same-name-policies-collide", Policies: func(_ *oracle.Cluster, given []*Policy) []*Policy {
			seen := map[string]bool{}
			return all(given, drop(func(p *Policy) bool {
				known := seen[p.Name]
				seen[p.Name] = true
				return known
			}))
		}},
	}
}

func peers() []Reading {
	return []Reading{
		eachPeer("nil-ns-is-all", change(func(p *peer) {
			if p.IPBlock == nil && p.NamespaceSelector == nil {
				p.NamespaceSelector = &selector{}
			}
		})),
		eachPeer("pod-selector-ignored-with-ns", change(func(p *peer) {
			if p.NamespaceSelector != nil {
				p.PodSelector = nil
			}
		})),
		eachPeer("ns-selector-ignored-with-pod", change(func(p *peer) {
			if p.PodSelector != nil {
				p.NamespaceSelector = nil
			}
		})),
		eachPeer("ns-and-pod-ORed", replace(
			func(p peer) bool { return p.NamespaceSelector != nil && p.PodSelector != nil },
			func(p peer) []peer {
				return []peer{{NamespaceSelector: p.NamespaceSelector},
					{NamespaceSelector: &selector{}, PodSelector: p.PodSelector}}
			})),
		each("ns-selector-ignores-own-ns", func(p *Policy) {
			other := requirement{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn,
				Values: []string{p.Namespace}}
			for peers := range oracle.EachRule(p) {
				for _, x := range *peers {
					if s := x.NamespaceSelector; s != nil {
						s.MatchExpressions = append(s.MatchExpressions, other)
					}
				}
			}
		}),
	}
}
