// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/viplab/viplab/internal/suite/netpol/misreading"
	"github.com/viplab/viplab/lab"
)

// Generated policies are valid in all families, survive WriteCases and Load unchanged, and together use every field of
// the API.
func TestRandomCases(t *testing.T) {
	var all strings.Builder
	open, blocked := 0, 0
	for i := range uint64(400) {
		c := Random(7, i)
		var file bytes.Buffer
		judged, err := c.Cluster(lab.IPv4)
		if err != nil {
			t.Fatal(err)
		}
		table, written := tableOf(judged, lab.V4), c
		written.Blocked = &table
		if err := WriteCases(&file, written); err != nil {
			t.Fatal(err)
		}
		all.Write(file.Bytes())
		read, err := Load("random.json", file.Bytes())
		if err != nil {
			t.Fatalf("%s: %v\n%s", c.ID, err, file.String())
		}
		if !reflect.DeepEqual(read[0].Policies, c.Policies) || *read[0].Blocked != table {
			t.Errorf("%s is read otherwise than it was written:\n%s", c.ID, file.String())
		}
		for _, stack := range []lab.Stack{lab.IPv4, lab.IPv6, lab.Dual} {
			judged, err := c.Cluster(stack)
			if err != nil {
				t.Errorf("%s, %s: %v\n%s", c.ID, stack, err, file.String())
				continue
			}
			if table := tableOf(judged, lab.V4); stack == lab.IPv4 {
				open, blocked = open+Cells-table.Blocked(), blocked+table.Blocked()
			}
		}
		if again := Random(7, i); !reflect.DeepEqual(again, c) {
			t.Errorf("%s is another one the second time", c.ID)
		}
	}
	if share := 100 * blocked / (open + blocked); share < 15 || share > 85 {
		t.Errorf("%d %% of all cells are blocked: policies are too much alike", share)
	}
	for _, want := range []string{
		`"policyTypes"`, `"matchLabels"`, `"matchExpressions"`, `"In"`, `"NotIn"`, `"Exists"`, `"DoesNotExist"`, `"ipBlock"`,
		`"except"`,
		`"endPort"`, `"protocol": "SCTP"`, `"port": "http"`, `"ingress": []`, `"egress": []`, `"from": []`, `"to": []`,
		`"ports": []`,
		`"podSelector": {}`, `"namespaceSelector": {}`,
	} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("no policy of 400 has %s", want)
		}
	}
}

// Each wrong reading differs from the right one on some generated policies, and these shrink to few fields.
func TestRandomCasesTellReadingsAndShrink(t *testing.T) {
	readings := map[string]int{"NotIn-needs-key": 8, "endPort-exclusive": 8, "except-first-only": 8, "nil-ns-is-all": 7,
		"default-types-ingress-only": 5, "only-first-rule": 8}
	for _, r := range misreading.All() {
		most, wanted := readings[r.Name]
		if !wanted {
			continue
		}
		fails := func(c Case) (bool, error) {
			right, err := c.Cluster(lab.IPv4)
			if err != nil {
				return false, err
			}
			return c.changedBy(r, right)
		}
		found := false
		for i := uint64(0); i < 3000 && !found; i++ {
			c := Random(1, i)
			if failed, err := fails(c); err != nil || !failed {
				continue
			}
			found = true
			small, err := Shrink(c, lab.IPv4, fails)
			if err != nil {
				t.Fatal(err)
			}
			if failed, err := fails(small); err != nil || !failed {
				t.Errorf("%s: what is left of %s does not fail: %v", r.Name, c.ID, err)
			}
			if n := leaves(t, small.Policies); n > most {
				text, _ := json.MarshalIndent(small.Policies, "", " ")
				t.Errorf("%s: %d values are left of %s, want %d at most:\n%s", r.Name, n, c.ID, most, text)
			}
		}
		if !found {
			t.Errorf("%s: no generated case tells it from the right reading", r.Name)
		}
	}
}

// leaves returns the number of values in the specs of policies.
func leaves(t *testing.T, policies []*networkingv1.NetworkPolicy) int {
	t.Helper()
	tree, err := treeOf(policies)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	var count func(any)
	count = func(tree any) {
		switch v := tree.(type) {
		case []any:
			for _, child := range v {
				count(child)
			}
		case map[string]any:
			for _, child := range v {
				count(child)
			}
		default:
			n++
		}
	}
	for _, p := range tree.([]any) {
		count(p.(map[string]any)["spec"])
	}
	return n
}
