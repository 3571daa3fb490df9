// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/lab/traffic"
)

// A server and a client on the loopback device of one namespace.
func ExampleProbe() {
	ns, err := netns.New("host")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ns.Close()
	if err := ns.Do(sandbox.LoopbackUp); err != nil {
		fmt.Println(err)
		return
	}
	loopback := netip.MustParseAddr("127.0.0.1")
	server, err := traffic.Serve(ns, "web", []netip.Addr{loopback}, traffic.Port{Proto: "tcp", Number: 80})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	for _, port := range []uint16{80, 81} {
		a := traffic.Probe{From: ns, To: netip.AddrPortFrom(loopback, port), Proto: "tcp"}.Do(context.Background())
		fmt.Println(a.Outcome, a.Server)
	}
	// Output:
	// Reply web
	// Refused
}
