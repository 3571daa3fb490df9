// SPDX-License-Identifier: Apache-2.0

package netns_test

import (
	"fmt"

	"github.com/viplab/viplab/lab/netns"
)

// A new namespace that forwards packets.
func ExampleNew() {
	router, err := netns.New("router", netns.Setting{Key: "net.ipv4.ip_forward", Value: "1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer router.Close()
	fmt.Println(router.Sysctl("net.ipv4.ip_forward"))
	// Output: 1 <nil>
}
