package conntrack

import (
	"context"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"github.com/ti-mo/conntrack"
	"github.com/ti-mo/netfilter"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
)

// Clean deletes the stale flows of a family from a namespace. Call it when the rules that make the wanted flows are in
// force: a flow that is deleted starts anew under them.
//
// It looks again until it finds nothing more. A packet that was on its way through the old rules may have made a flow
// while the list was being read, and a list read while the table is resized may lack some.
func Clean(ctx context.Context, ns *netns.NS, f lab.Family, want *Wanted) error {
	if len(want.virtual) == 0 && len(want.nodePorts) == 0 {
		return nil
	}
	c, err := conntrack.Dial(&netlink.Config{NetNS: ns.Fd()})
	if err != nil {
		return fmt.Errorf("%s: open connection tracking: %w", ns.Name(), err)
	}
	defer c.Close()
	for {
		deleted, err := pass(c, f, want)
		if err != nil {
			return fmt.Errorf("%s: delete stale flows: %w", ns.Name(), err)
		}
		if deleted == 0 {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: delete stale flows: %w", ns.Name(), ctx.Err())
		}
	}
}

// pass deletes the stale flows of one listing and says how many there were.
func pass(c *conntrack.Conn, f lab.Family, want *Wanted) (int, error) {
	family := netfilter.ProtoIPv4
	if f == lab.V6 {
		family = netfilter.ProtoIPv6
	}
	flows, err := c.DumpFilter(conntrack.NewFilter().Family(family), nil)
	if err != nil {
		return 0, err
	}
	deleted := 0
	for i := range flows {
		if !want.Stale(&flows[i]) {
			continue
		}
		deleted++
		// The library tells the family of a flow by both of its tuples.
		err := c.Delete(conntrack.Flow{TupleOrig: flows[i].TupleOrig, TupleReply: flows[i].TupleReply, Zone: flows[i].Zone})
		if err != nil && !errors.Is(err, unix.ENOENT) { // ENOENT: it ended by itself
			return deleted, err
		}
	}
	return deleted, nil
}
