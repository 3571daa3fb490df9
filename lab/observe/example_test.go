// SPDX-License-Identifier: Apache-2.0

package observe_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/traffic"
)

// A pod that calls the client outside the cluster gets its node's address. The node's conntrack table shows it.
func ExampleConntrack() {
	ctx := context.Background()
	l, err := lab.Build(ctx, lab.Topology{Nodes: []lab.NodeSpec{{Name: "n1", Pods: []lab.PodSpec{{Name: "a"}}}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	web := netip.AddrPortFrom(l.Client().Addr(lab.V4), 80)
	server, err := traffic.Serve(l.Client().NS, "web", l.Client().Addrs(), traffic.Port{Proto: "tcp", Number: 80})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	table, err := observe.NewConntrack(l.Node("n1").NS)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer table.Close()

	conn, answer := traffic.Probe{From: l.Pod("a").NS, To: web, Proto: "tcp"}.Open(ctx)
	if conn == nil {
		fmt.Println(answer)
		return
	}
	defer conn.Close()
	flow, found, err := table.Flow("tcp", observe.Tuple{Src: answer.Source, Dst: web})
	fmt.Println(found, err, flow.SNAT(), flow.Reply.Dst.Addr(), answer.Peer.Addr())
	// Output: true <nil> true 192.168.7.11 192.168.7.11
}
