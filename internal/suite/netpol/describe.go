// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/internal/suite/netpol/oracle"
)

// Describe writes the meaning of a case's policies in sentences.
func Describe(w io.Writer, c Case) error {
	var b strings.Builder
	for _, p := range c.Policies {
		fmt.Fprintf(&b, "Policy %s/%s is about %s in namespace %s (%s).\n", p.Namespace, p.Name,
			selected("pods", &p.Spec.PodSelector), p.Namespace, cmp.Or(strings.Join(podsSelected(p), ", "), "none"))
		for _, d := range []struct {
			of         networkingv1.PolicyType
			verb, word string
		}{{networkingv1.PolicyTypeIngress, "get", "from"}, {networkingv1.PolicyTypeEgress, "send", "to"}} {
			if rules, isolates := oracle.Rules(p, d.of); isolates {
				fmt.Fprintf(&b, "  What they may %s:", d.verb)
				writeRules(&b, d.word, rules)
			}
		}
	}
	if len(c.Policies) == 0 {
		b.WriteString("There are no policies: everything is allowed.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// podsSelected returns the pods of the grid that a policy isolates.
func podsSelected(p *networkingv1.NetworkPolicy) []string {
	return slices.DeleteFunc(slices.Clone(Pods), func(name string) bool {
		pod := podObject(name, "", nil)
		return pod.Namespace != p.Namespace || !oracle.Matches(&p.Spec.PodSelector, pod.Labels)
	})
}

func writeRules(b *strings.Builder, word string, rules []oracle.Rule) {
	if len(rules) == 0 {
		b.WriteString(" nothing.\n")
		return
	}
	b.WriteByte('\n')
	for _, r := range rules {
		fmt.Fprintf(b, "  - %s %s, on %s\n", word, either(r.Peers, "anybody", describePeer),
			either(r.Ports, "all ports", describePort))
	}
}

func either[T any](all []T, none string, describe func(T) string) string {
	if len(all) == 0 {
		return none
	}
	var out []string
	for _, one := range all {
		out = append(out, describe(one))
	}
	return strings.Join(out, "; or ")
}

func describePeer(p networkingv1.NetworkPolicyPeer) string {
	if p.IPBlock != nil {
		text := "addresses of " + p.IPBlock.CIDR
		if len(p.IPBlock.Except) > 0 {
			text += " but for " + strings.Join(p.IPBlock.Except, " and ")
		}
		return text
	}
	pods, where := "all pods", "its own namespace"
	if p.PodSelector != nil {
		pods = selected("pods", p.PodSelector)
	}
	if p.NamespaceSelector != nil {
		where = selected("namespaces", p.NamespaceSelector)
	}
	return pods + " in " + where
}

func describePort(p networkingv1.NetworkPolicyPort) string {
	protocol := string(ptr.Deref(p.Protocol, corev1.ProtocolTCP))
	switch {
	case p.Port == nil:
		return "every " + protocol + " port"
	case p.Port.Type == intstr.String:
		return fmt.Sprintf("the %s port that the target calls %q", protocol, p.Port.StrVal)
	case p.EndPort != nil:
		return fmt.Sprintf("%s ports %d to %d", protocol, p.Port.IntVal, *p.EndPort)
	}
	return fmt.Sprintf("%s port %d", protocol, p.Port.IntVal)
}

// selected describes a selector's set of things.
func selected(things string, s *metav1.LabelSelector) string {
	var conditions []string
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		conditions = append(conditions, fmt.Sprintf("%s is %q", key, s.MatchLabels[key]))
	}
	for _, r := range s.MatchExpressions {
		values := strings.Join(r.Values, `" or "`)
		switch r.Operator {
		case metav1.LabelSelectorOpIn:
			conditions = append(conditions, fmt.Sprintf(`%s is "%s"`, r.Key, values))
		case metav1.LabelSelectorOpNotIn:
			conditions = append(conditions, fmt.Sprintf(`%s is absent or not "%s"`, r.Key, values))
		case metav1.LabelSelectorOpExists:
			conditions = append(conditions, r.Key+" is there")
		case metav1.LabelSelectorOpDoesNotExist:
			conditions = append(conditions, r.Key+" is absent")
		}
	}
	if len(conditions) == 0 {
		return "all " + things
	}
	return things + " whose label " + strings.Join(conditions, ", and whose label ")
}
