package conntrack

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"github.com/ti-mo/conntrack"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// Clean deletes the flows from a namespace that are stale by any of the answers, which are about one family each. Call it
// when the rules that make the wanted flows are in force: a flow that is deleted starts anew under them.
//
// It looks again until it finds nothing more. A packet that was on its way through the old rules may have made a flow
// while the list was being read, and a list read while the table is resized may lack some.
//
// A listing takes milliseconds even where there are no flows: the kernel goes through the table that all namespaces share
// (ctnetlink_dump_table). So there is none if no flow can be stale, and one for all answers.
func Clean(ctx context.Context, ns *netns.NS, answers ...*Wanted) error {
	answers = slices.DeleteFunc(slices.Clone(answers), (*Wanted).empty)
	if len(answers) == 0 {
		return nil
	}
	c, err := conntrack.Dial(&netlink.Config{NetNS: ns.Fd()})
	if err != nil {
		return fmt.Errorf("%s: open connection tracking: %w", ns.Name(), err)
	}
	defer c.Close()
	for {
		deleted, err := pass(c, answers)
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
func pass(c *conntrack.Conn, answers []*Wanted) (int, error) {
	flows, err := c.Dump(nil)
	if err != nil {
		return 0, err
	}
	deleted := 0
	for i := range flows {
		if !slices.ContainsFunc(answers, func(w *Wanted) bool { return w.Stale(&flows[i]) }) {
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
