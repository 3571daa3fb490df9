// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ti-mo/conntrack"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// Cleaner takes stale flows out of the connection tracking of one namespace. It is not safe for concurrent use.
type Cleaner struct {
	ns     *netns.NS
	mirror *mirror // nil until there is something to look for
}

// NewCleaner makes a cleaner. It opens nothing before it is needed.
func NewCleaner(ns *netns.NS) *Cleaner { return &Cleaner{ns: ns} }

// Close closes what the cleaner has opened. It can be used again.
func (c *Cleaner) Close() error {
	if c.mirror == nil {
		return nil
	}
	err := c.mirror.close()
	c.mirror = nil
	return err
}

// Clean deletes the flows that are stale by any of the answers, which are about one family each. Call it when the rules
// that make the wanted flows are in force: a flow that is deleted starts anew under them. It looks again until it finds
// nothing more.
func (c *Cleaner) Clean(ctx context.Context, answers ...*Wanted) error {
	answers = slices.DeleteFunc(slices.Clone(answers), (*Wanted).empty)
	if len(answers) == 0 {
		return nil
	}
	if err := c.clean(ctx, answers); err != nil {
		return errors.Join(fmt.Errorf("%s: delete stale flows: %w", c.ns.Name(), err), c.Close())
	}
	return nil
}

func (c *Cleaner) clean(ctx context.Context, answers []*Wanted) error {
	if err := c.look(); err != nil {
		return err
	}
	for {
		deleted, err := c.pass(answers)
		if err != nil || deleted == 0 {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := c.mirror.update(); err != nil {
			return err
		}
	}
}

// look makes the mirror show every flow that old rules have made.
func (c *Cleaner) look() (err error) {
	if c.mirror == nil {
		c.mirror, err = newMirror(c.ns)
		return err // its flows have just been listed, which takes longer than a packet is under way
	}
	if err := passed(); err != nil {
		return c.mirror.list()
	}
	return c.mirror.update()
}

// passed returns when every packet that was being processed when it was called has left the node or reached a socket:
// packets are processed within read-side sections of RCU, and a global membarrier(2) waits for all of those to end. It
// is an error where the kernel does not do that, as with nohz_full.
func passed() error {
	const global = 1 // MEMBARRIER_CMD_GLOBAL of linux/membarrier.h
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0); errno != 0 {
		return fmt.Errorf("membarrier: %w", errno)
	}
	return nil
}

// pass deletes the stale flows that the mirror shows, and says how many there were.
func (c *Cleaner) pass(answers []*Wanted) (int, error) {
	deleted := 0
	for orig, reply := range c.mirror.flows {
		// The library tells the family of a flow by both of its tuples.
		f := conntrack.Flow{TupleOrig: orig.Tuple, TupleReply: reply, Zone: orig.zone}
		if !slices.ContainsFunc(answers, func(w *Wanted) bool { return w.Stale(&f) }) {
			continue
		}
		deleted++
		// ENOENT: it ended by itself
		if err := c.mirror.requests.Delete(f); err != nil && !errors.Is(err, unix.ENOENT) {
			return deleted, err
		}
		delete(c.mirror.flows, orig)
	}
	return deleted, nil
}
