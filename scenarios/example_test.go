// SPDX-License-Identifier: Apache-2.0

package scenarios_test

import (
	"fmt"

	"github.com/viplab/viplab/scenarios"
)

// The catalogue is a slice of values.
func ExampleAll() {
	all, err := scenarios.All()
	if err != nil {
		fmt.Println(err)
	}
	for _, s := range all {
		if s.ID == "hairpin-clusterip" {
			fmt.Println(s.Priority, s.Needs)
		}
	}
	// Output: P1 [clusterip]
}
