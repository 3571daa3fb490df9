// SPDX-License-Identifier: Apache-2.0

package spec_test

import (
	"fmt"

	"github.com/viplab/viplab/suite/spec"
)

// A row is a probe and its expectation, as a value.
func ExampleRow() {
	row := spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a1", "a2"}}
	fmt.Println(row.From, "->", row.To)
	// Output: c1 -> clusterIP(web):80
}

// A proxier declares features; a scenario that needs others is skipped.
func ExampleFeatureSet_Missing() {
	declared := spec.Features(spec.ClusterIP, spec.NodePort)
	fmt.Println(declared.Missing([]spec.Feature{spec.NodePort, spec.SessionAffinity}))
	// Output: [session-affinity]
}
