// SPDX-License-Identifier: Apache-2.0

package scenarios_test

import (
	"fmt"

	"github.com/viplab/viplab/scenarios"
)

// The catalogue is a slice of values.
func ExampleAll() {
	for _, s := range scenarios.All() {
		if s.ID == "hairpin-clusterip" {
			fmt.Println(s.Priority, s.Needs)
		}
	}
	// Output: P1 [clusterip hairpin]
}
