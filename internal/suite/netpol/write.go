// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"encoding/json"
	"fmt"
	"io"

	networkingv1 "k8s.io/api/networking/v1"
)

// WriteCase writes a file that Load reads as this case, without a table, which the oracle provides.
func WriteCase(w io.Writer, c Case) error {
	policies, err := treeOf(c.Policies)
	if err != nil {
		return err
	}
	names := map[string][][]any{}
	for pod, ports := range c.NamedPorts {
		for _, p := range ports {
			names[pod] = append(names[pod], []any{p.Name, p.Port.Number, p.Port.Protocol})
		}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(map[string]any{"cases": []any{map[string]any{
		"id": c.ID, "priority": c.Priority, "given": c.Given, "policies": policies, "extraNamedPorts": names,
	}}})
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
