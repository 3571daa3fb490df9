// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/viplab/viplab/internal/lab/link"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
)

// outsideNet is the link between the router and the processes of the tests: addresses of documentation (RFC 5737, RFC
// 3849). Some specs want the tests to be in no network of a node, or else a preserved source looks like a node's.
var outsideNet = map[lab.Family]struct{ router, tests, everywhere netip.Prefix }{
	lab.V4: {netip.MustParsePrefix("198.51.100.1/24"), netip.MustParsePrefix("198.51.100.2/24"),
		netip.MustParsePrefix("0.0.0.0/0")},
	lab.V6: {netip.MustParsePrefix("2001:db8:51::1/64"), netip.MustParsePrefix("2001:db8:51::2/64"),
		netip.MustParsePrefix("::/0")},
}

// Outside makes a namespace behind the router of a lab, from which nodes and load balancers can be reached. The caller
// closes it.
func Outside(ctx context.Context, l *lab.Lab) (*netns.NS, error) {
	ns, err := netns.New("tests", netns.Setting{Key: "net.ipv6.conf.default.accept_ra", Value: "0", Optional: true})
	if err != nil {
		return nil, err
	}
	const index = 200 // of no other device of either namespace
	near, far := link.Dev{Name: "eth0", Index: index}, link.Dev{Name: "tests", Index: index}
	here := []link.Op{
		link.Veth{Dev: near, MAC: link.MAC{2, 0, 0, 0, 1, 2}, MTU: 1500,
			Peer: link.Peer{Dev: far, MAC: link.MAC{2, 0, 0, 0, 1, 1}, NS: l.Router().NS}},
		link.Up{Dev: link.Loopback}, link.Up{Dev: near},
	}
	there := []link.Op{link.Up{Dev: far}}
	for _, f := range l.Stack().Families() {
		a := outsideNet[f]
		here = append(here, link.Addr{Dev: near, Prefix: a.tests},
			link.Route{To: a.everywhere, Via: a.router.Addr(), Dev: near})
		there = append(there, link.Addr{Dev: far, Prefix: a.router})
	}
	err = errors.Join(link.Apply(ns, here...), link.Apply(l.Router().NS, there...))
	if err == nil {
		err = errors.Join(link.Ready(ctx, ns, link.Consequences(here...)...),
			link.Ready(ctx, l.Router().NS, link.Consequences(there...)...))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("build the place of the tests: %w", err), ns.Close())
	}
	return ns, nil
}
