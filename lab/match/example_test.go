// SPDX-License-Identifier: Apache-2.0

package match_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/onsi/gomega"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/match"
	"github.com/viplab/viplab/lab/traffic"
)

// Pods of two nodes talk without address translation. In a test, gomega.NewWithT(t) takes the place of NewGomega.
func Example() {
	ctx := context.Background()
	l, err := lab.Build(ctx, lab.Topology{Nodes: []lab.NodeSpec{
		{Name: "n1", Pods: []lab.PodSpec{{Name: "a"}}},
		{Name: "n2", Pods: []lab.PodSpec{{Name: "b"}}},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	a, b := l.Pod("a"), l.Pod("b")
	server, err := traffic.Serve(b.NS, "b", b.Addrs(), traffic.Port{Proto: "tcp", Number: 80})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()

	g := gomega.NewGomega(func(message string, _ ...int) { fmt.Println(message) })
	probe := traffic.Probe{From: a.NS, To: netip.AddrPortFrom(b.Addr(lab.V4), 80), Proto: "tcp"}
	g.Expect(probe.Do(ctx)).To(gomega.And(match.ReplyFrom("b"), match.SeenAs(a.Addr(lab.V4))))

	probe.To = netip.AddrPortFrom(b.Addr(lab.V4), 81)
	g.Expect(probe.Do(ctx)).To(match.Replied())
	// Output:
	// want Reply
	// got  Refused: RST
}
