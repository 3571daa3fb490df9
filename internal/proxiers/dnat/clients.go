// SPDX-License-Identifier: Apache-2.0

package dnat

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/viplab/viplab/internal/proxiers/ipset"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/proxiers/model"
)

// Clients are the IP sets in which the endpoints of Services with session affinity remember their clients: one set
// for each endpoint of a port. The chain of the endpoint adds the client of every new connection. The kernel forgets a
// client when the timeout of the set has passed.
//
// kube-proxy uses the recent match, which remembers only 100 clients of an endpoint.
type Clients struct {
	ip   lab.Family
	conn *ipset.Conn
	// held maps the names of the sets in the kernel to their timeouts. Nil means unknown.
	held map[string]time.Duration
	// wanted are the sets that the rules name.
	wanted map[string]time.Duration
}

// clientsOf maps the sets of the endpoints of Services to their timeouts.
func clientsOf(services []*model.Service) map[string]time.Duration {
	all := map[string]time.Duration{}
	for _, s := range services {
		for _, p := range s.Ports {
			if p.Affinity == 0 {
				continue
			}
			for _, ep := range slices.Concat(p.Cluster, p.Local) {
				all[ClientSet(p.ID, ep.Addr)] = p.Affinity
			}
		}
	}
	return all
}

// OpenClients connects to the IP sets of a namespace.
func OpenClients(ns *netns.NS, ip lab.Family) (*Clients, error) {
	conn, err := ipset.Dial(ns)
	if err != nil {
		return nil, err
	}
	return &Clients{ip: ip, conn: conn}, nil
}

// mostBuckets is the maximum size of a set's hash table. The kernel does not enlarge the table when it adds clients,
// and a bucket holds twelve; the first bucket is full at about 50,000 clients. tableBytes limits the tables of all sets
// together, at eight bytes a bucket: if there are many sets, new ones get smaller tables.
const (
	mostBuckets  = 1 << 14
	leastBuckets = 1 << 7
	tableBytes   = 32 << 20
)

// buckets returns the size of the hash table for each of a number of sets.
func buckets(sets int) int {
	n := mostBuckets
	for n > leastBuckets && 8*n*sets > tableBytes {
		n /= 2
	}
	return n
}

// set returns a set with its limits.
func (c *Clients) set(name string, timeout time.Duration) ipset.Set {
	return ipset.Set{Name: name, Type: ipset.IP, Family: c.ip, Timeout: timeout, Buckets: buckets(len(c.wanted))}
}

// Close closes the connection. The sets stay.
func (c *Clients) Close() error { return c.conn.Close() }

// Load lists the existing sets, which earlier instances may have made.
func (c *Clients) Load() (err error) {
	c.held, err = c.conn.Timeouts(setPrefix(c.ip))
	return err
}

// Prepare creates the missing sets of Services and changes the timeouts of others, before rules name them.
func (c *Clients) Prepare(services ...*model.Service) error {
	c.wanted = clientsOf(services)
	if c.held == nil {
		if err := c.Load(); err != nil {
			return err
		}
	}
	for name, timeout := range c.wanted {
		former, there := c.held[name]
		var err error
		switch {
		case !there:
			err = c.conn.Create(c.set(name, timeout))
		case former != timeout:
			err = c.retime(name, former, timeout)
		}
		if err != nil {
			c.held = nil
			return err
		}
		c.held[name] = timeout
	}
	return nil
}

// nextSuffix marks the name of a set that will replace another one. Names have at most 31 bytes.
const nextSuffix = "-NEW"

// retime changes the timeout of a set. The kernel cannot do that, so it swaps the set with a new one. The new set gets
// the clients within the new timeout, and after the swap those that were added since the old set was read.
func (c *Clients) retime(name string, from, to time.Duration) error {
	old, next := c.set(name, from), c.set(name+nextSuffix, to)
	if err := errors.Join(c.conn.Destroy(next), c.conn.Create(next)); err != nil {
		return err
	}
	c.held[next.Name] = from // after the swap; Discard destroys it
	left := map[netip.Addr]time.Duration{}
	carry := func(source, target ipset.Set) error {
		entries, err := c.conn.Entries(source)
		if err != nil {
			return err
		}
		var come []ipset.Entry
		for _, e := range entries {
			before := left[e.Addr]
			left[e.Addr] = e.Timeout
			// The kernel tells whole seconds, rounded down. Nobody is to be forgotten too early.
			if still := min(e.Timeout+time.Second-from, 0) + to; e.Timeout > before && still > 0 {
				come = append(come, ipset.Entry{Addr: e.Addr, Timeout: still})
			}
		}
		return c.conn.Add(target, come...)
	}
	if err := carry(old, next); err != nil {
		return err
	}
	if err := c.conn.Swap(old, next); err != nil {
		return err
	}
	return carry(next, old)
}

// Discard destroys the sets that no rule names any more, and reports whether none of them is left. The kernel keeps a
// set until it has freed the deleted rules, some time later. Discard flushes such a set, and a later call destroys it.
func (c *Clients) Discard() (done bool, err error) {
	if len(c.held) == len(c.wanted) {
		return true, nil
	}
	for name := range c.held {
		if _, used := c.wanted[name]; used {
			continue
		}
		err := c.conn.Destroy(ipset.Set{Name: name})
		switch {
		case errors.Is(err, ipset.ErrInUse):
			err = c.conn.Flush(ipset.Set{Name: name})
		case err == nil:
			delete(c.held, name)
		}
		if err != nil {
			return false, err
		}
	}
	return len(c.held) == len(c.wanted), nil
}

// Remove destroys all sets, also those of earlier instances. No rule of the proxier may name them any more.
func (c *Clients) Remove(ctx context.Context) error {
	c.wanted = nil
	if err := c.Load(); err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(c.held))
	c.held = nil
	return c.conn.DestroyAll(ctx, names...)
}

// Dump lists the sets with their clients and their remaining timeouts.
func (c *Clients) Dump() ([]byte, error) {
	sets, err := c.conn.Timeouts(setPrefix(c.ip))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		clients, err := c.conn.Entries(ipset.Set{Name: name})
		if err != nil {
			return nil, err
		}
		slices.SortFunc(clients, func(a, b ipset.Entry) int { return a.Addr.Compare(b.Addr) })
		fmt.Fprintf(&out, "# set %s: clients of the last %v:", name, sets[name])
		for _, e := range clients {
			fmt.Fprintf(&out, " %s (%v left)", e, e.Timeout)
		}
		out.WriteByte('\n')
	}
	return out.Bytes(), nil
}
