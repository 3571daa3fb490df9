// SPDX-License-Identifier: Apache-2.0

package proxiers_test

import (
	"fmt"

	"github.com/viplab/viplab/proxiers"
	"github.com/viplab/viplab/suite/spec"
)

func ExampleFind() {
	found, err := proxiers.Find("iptables", "nftables")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range found {
		fmt.Println(p.Name(), p.Features()[spec.NodePortLocalhost])
	}
	// Output:
	// iptables true
	// nftables false
}
