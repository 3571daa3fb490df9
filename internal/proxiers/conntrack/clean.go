// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/ti-mo/conntrack"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/suite/spec"
)

// Cleaner deletes stale flows from the connection tracking of one namespace. It is not safe for concurrent use.
type Cleaner struct {
	ns     *netns.NS
	mirror *mirror // nil until it is needed
}

// NewCleaner makes a cleaner. It opens nothing before it is needed.
func NewCleaner(ns *netns.NS) *Cleaner { return &Cleaner{ns: ns} }

// Close closes the mirror. The cleaner can be used again.
func (c *Cleaner) Close() error {
	if c.mirror == nil {
		return nil
	}
	err := c.mirror.close()
	c.mirror = nil
	return err
}

// Clean deletes the flows that are stale by any of the descriptions, one for each family. Call it when the new rules
// are in force, under which a deleted flow starts anew. It repeats until it finds no stale flow.
func (c *Cleaner) Clean(ctx context.Context, all ...*Wanted) error {
	all = slices.DeleteFunc(slices.Clone(all), (*Wanted).empty)
	if len(all) == 0 {
		return nil
	}
	if err := c.clean(ctx, all); err != nil {
		return errors.Join(fmt.Errorf("%s: delete stale flows: %w", c.ns.Name(), err), c.Close())
	}
	return nil
}

func (c *Cleaner) clean(ctx context.Context, all []*Wanted) error {
	if c.mirror == nil && !slices.ContainsFunc(all, (*Wanted).hasFrontends) && untracked(c.ns) {
		return nil // a fresh node without UDP ports needs no mirror yet
	}
	if err := c.look(); err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(w *Wanted) bool { return w.Inherited != 0 }) {
		// Another program may translate an orphan again at once, so that repeating this might not end.
		if _, err := c.pass(all, (*Wanted).Orphan); err != nil {
			return err
		}
	}
	for {
		if deleted, err := c.pass(all, (*Wanted).Stale); err != nil || deleted == 0 {
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

// look makes the mirror show every flow that the old rules made.
func (c *Cleaner) look() (err error) {
	if c.mirror == nil {
		c.mirror, err = newMirror(c.ns)
		return err // it has just listed the flows, which takes longer than a packet
	}
	if err := passed(); err != nil {
		return c.mirror.list()
	}
	return c.mirror.update()
}

// passed returns when every packet that the kernel was processing has left the node or reached a socket: packets are
// processed in read-side critical sections of RCU, and a global membarrier(2) waits for the end of all of them. It
// returns an error if the kernel does not support that, as with nohz_full.
func passed() error {
	const global = 1 // MEMBARRIER_CMD_GLOBAL of linux/membarrier.h
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0); errno != 0 {
		return fmt.Errorf("membarrier: %w", errno)
	}
	return nil
}

// pass deletes the flows in the mirror that any of the descriptions condemns, and returns their number.
func (c *Cleaner) pass(all []*Wanted, condemns func(*Wanted, *conntrack.Flow) bool) (deleted int, err error) {
	var f conntrack.Flow // one for all, as it is large and escapes to the heap
	for to := range c.candidates(all) {
		for orig, reply := range c.mirror.flows[to] {
			// The library derives the family of a flow from both of its tuples.
			f.TupleOrig, f.TupleReply, f.Zone = orig.Tuple, reply, orig.zone
			if !slices.ContainsFunc(all, func(w *Wanted) bool { return condemns(w, &f) }) {
				continue
			}
			deleted++
			// ENOENT: it ended by itself
			if err := c.mirror.requests.Delete(f); err != nil && !errors.Is(err, unix.ENOENT) {
				return deleted, err
			}
			c.mirror.forget(orig)
		}
	}
	return deleted, nil
}

// candidates yields where flows may have been sent to that the descriptions condemn.
func (c *Cleaner) candidates(all []*Wanted) iter.Seq[netip.AddrPort] {
	if slices.ContainsFunc(all, func(w *Wanted) bool { return w.Relays.IsValid() || w.Inherited != 0 }) {
		return maps.Keys(c.mirror.flows)
	}
	return func(yield func(netip.AddrPort) bool) {
		for _, w := range all {
			for to := range w.frontends {
				if !yield(to) {
					return
				}
			}
		}
	}
}

// Settings returns the sysctls for a configuration. By default they are those that kube-proxy sets in all modes: the
// kernel's timeout of established connections, five days, is too long for a busy node, and that of half-closed ones, a
// minute, too short for slow servers. A UDP timeout that is not configured stays the kernel's.
func Settings(c spec.ConntrackConfig) []netns.Setting {
	var all []netns.Setting
	timeout := func(which string, d time.Duration) {
		if d > 0 {
			all = append(all, netns.Setting{Key: prefix + which, Value: strconv.Itoa(int(d.Seconds()))})
		}
	}
	timeout("tcp_timeout_established", cmp.Or(c.TCPEstablished, 24*time.Hour))
	timeout("tcp_timeout_close_wait", cmp.Or(c.TCPCloseWait, time.Hour))
	timeout("udp_timeout", c.UDP)
	timeout("udp_timeout_stream", c.UDPStream)
	if c.TCPBeLiberal {
		all = append(all, netns.Setting{Key: prefix + "tcp_be_liberal", Value: "1"})
	}
	return all
}

const prefix = "net.netfilter.nf_conntrack_"
