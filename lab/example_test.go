// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"context"
	"fmt"

	"github.com/viplab/viplab/lab"
)

// Two nodes with a pod each. The test binary runs in a sandbox (see sandbox.Main), so no privileges are needed.
func ExampleBuild() {
	l, err := lab.Build(context.Background(), lab.Topology{
		Stack:   lab.Dual,
		Overlay: lab.Direct,
		Nodes: []lab.NodeSpec{
			{Name: "n1", Pods: []lab.PodSpec{{Name: "a"}}},
			{Name: "n2", Pods: []lab.PodSpec{{Name: "b"}}},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	for _, p := range l.Pods() {
		fmt.Println(p.Node().Name(), p.Node().Addrs(), p.Name(), p.Addrs())
	}
	// Output:
	// n1 [192.168.7.11 fd00:7::11 192.168.7.111 fd00:7::111] a [10.244.1.2 fd00:10:244:1::2]
	// n2 [192.168.7.12 fd00:7::12 192.168.7.112 fd00:7::112] b [10.244.2.2 fd00:10:244:2::2]
}
