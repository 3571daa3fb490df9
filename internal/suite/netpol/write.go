// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"encoding/json"
	"fmt"
	"io"

	networkingv1 "k8s.io/api/networking/v1"
)

// WriteCases writes a file that Load reads as these cases. The oracle provides the tables of cases without one.
func WriteCases(w io.Writer, cases ...Case) error {
	written := []any{}
	for _, c := range cases {
		policies, err := treeOf(c.Policies)
		if err != nil {
			return fmt.Errorf("case %s: %w", c.ID, err)
		}
		names := map[string][][]any{}
		for pod, ports := range c.NamedPorts {
			for _, p := range ports {
				names[pod] = append(names[pod], []any{p.Name, p.Port.Number, p.Port.Protocol})
			}
		}
		one := map[string]any{
			"id": c.ID, "priority": c.Priority, "given": c.Given, "source": c.Source, "policies": policies,
			"extraNamedPorts": names,
		}
		if c.Blocked != nil {
			one["blocked"] = c.Blocked.lines()
		}
		written = append(written, one)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(map[string]any{"cases": written})
}

// treeOf returns policies as JSON trees. It keeps empty lists, which the API's own encoding omits.
func treeOf(policies []*networkingv1.NetworkPolicy) (any, error) {
	out := []any{}
	for _, p := range policies {
		text, err := json.Marshal(p)
		if err != nil {
			return nil, fmt.Errorf("policy %s/%s: %w", p.Namespace, p.Name, err)
		}
		var tree map[string]any
		if err := json.Unmarshal(text, &tree); err != nil {
			return nil, fmt.Errorf("policy %s/%s: %w", p.Namespace, p.Name, err)
		}
		spec := tree["spec"].(map[string]any)
		keepEmpty(spec, "ingress", p.Spec.Ingress)
		keepEmpty(spec, "egress", p.Spec.Egress)
		for i, r := range p.Spec.Ingress {
			rule := spec["ingress"].([]any)[i].(map[string]any)
			keepEmpty(rule, "from", r.From)
			keepEmpty(rule, "ports", r.Ports)
		}
		for i, r := range p.Spec.Egress {
			rule := spec["egress"].([]any)[i].(map[string]any)
			keepEmpty(rule, "to", r.To)
			keepEmpty(rule, "ports", r.Ports)
		}
		out = append(out, tree)
	}
	return out, nil
}

func keepEmpty[T any](of map[string]any, key string, list []T) {
	if list != nil && len(list) == 0 {
		of[key] = []any{}
	}
}
