// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/mdlayher/netlink"
	"github.com/ti-mo/conntrack"
	"github.com/ti-mo/netfilter"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// eventBuffer is the receive buffer of netlink sockets for events: room for some ten thousand.
const eventBuffer = 8 << 20 // bytes

// Conntrack reads and changes the conntrack table of one namespace. Its methods may be called from any goroutine.
//
// A namespace tracks nothing until something requires it, such as a NAT rule or a match on the conntrack state.
type Conntrack struct {
	ns     *netns.NS
	conn   *conntrack.Conn
	single *nfnetlink // for look-ups of single entries

	listing sync.Mutex // held while a listing is made
	mu      sync.Mutex
	next    *listing // the next listing, not begun yet; nil if no caller waits for one
}

// NewConntrack opens a connection to the table of a namespace. The caller closes it.
func NewConntrack(ns *netns.NS) (*Conntrack, error) {
	conn, err := conntrack.Dial(&netlink.Config{NetNS: ns.Fd()})
	if err != nil {
		return nil, fmt.Errorf("%s: open conntrack: %w", ns.Name(), err)
	}
	single, err := openNfnetlink(ns)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: open conntrack: %w", ns.Name(), err), conn.Close())
	}
	return &Conntrack{ns: ns, conn: conn, single: single}, nil
}

// Close closes the connection. The namespace may be closed before or after.
func (c *Conntrack) Close() error { return errors.Join(c.conn.Close(), c.single.close()) }

// Flows returns the entries of both families that keep accepts, or all if keep is nil. The listing starts after the
// call.
func (c *Conntrack) Flows(ctx context.Context, keep func(Flow) bool) ([]Flow, error) {
	all, err := c.list(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: list conntrack entries: %w", c.ns.Name(), err)
	}
	var out []Flow
	for i := range all {
		if f := flowFrom(&all[i]); keep == nil || keep(f) {
			out = append(out, f)
		}
	}
	return out, nil
}

// Flow returns the entry in zone 0 whose original direction is orig, and reports whether it exists. The protocol must
// have ports. Flow is faster than Flows.
func (c *Conntrack) Flow(proto string, orig Tuple) (Flow, bool, error) {
	tuple, err := Flow{Proto: proto}.tupleTo(orig) // for the protocol number
	var found *conntrack.Flow
	if err == nil {
		found, err = c.single.lookup(tuple.Proto.Protocol, orig)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Flow{}, false, nil
	case err != nil:
		return Flow{}, false, fmt.Errorf("%s: look conntrack entry %s %s up: %w", c.ns.Name(), proto, orig, err)
	}
	f := flowFrom(found)
	return f, f.Orig == orig, nil // the kernel also finds an entry by its reply direction
}

// listing is shared by all callers that asked before it began: the kernel walks the table of all namespaces.
type listing struct {
	done  chan struct{} // closed when the other fields are set
	flows []conntrack.Flow
	err   error
}

// list joins the next listing, and makes it if no other caller does.
func (c *Conntrack) list(ctx context.Context) ([]conntrack.Flow, error) {
	c.mu.Lock()
	l := c.next
	if l == nil {
		l = &listing{done: make(chan struct{})}
		c.next = l
		go c.make(l)
	}
	c.mu.Unlock()
	select {
	case <-l.done:
		return l.flows, l.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// make makes a listing once the previous one is done. Callers that ask after it began join the next one.
func (c *Conntrack) make(l *listing) {
	defer close(l.done)
	c.listing.Lock()
	defer c.listing.Unlock()
	c.mu.Lock()
	c.next = nil
	c.mu.Unlock()
	l.flows, l.err = c.dump()
}

// dumps is how often a dump is tried, which the kernel aborts if the buffer is full or the table is resized.
const dumps = 100

func (c *Conntrack) dump() (flows []conntrack.Flow, err error) {
	for range dumps {
		flows, err = c.conn.Dump(nil)
		if !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			break
		}
	}
	return flows, err
}

// Delete removes an entry. It is no error if the entry is already gone.
func (c *Conntrack) Delete(f Flow) error {
	orig, err := f.tupleTo(f.Orig)
	reply, replyErr := f.tupleTo(f.Reply) // the library derives the family from both
	if err = errors.Join(err, replyErr); err == nil {
		err = c.conn.Delete(conntrack.Flow{TupleOrig: orig, TupleReply: reply, Zone: f.Zone})
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: delete conntrack entry %s: %w", c.ns.Name(), f, err)
	}
	return nil
}

// Flush removes all entries of both families.
func (c *Conntrack) Flush() error {
	if err := c.conn.Flush(); err != nil {
		return fmt.Errorf("%s: flush conntrack entries: %w", c.ns.Name(), err)
	}
	return nil
}

// FlowChange is the kind of a change to a flow.
type FlowChange uint8

// The kinds of changes.
const (
	// FlowNew is a new flow: its first packet has left the node or reached a socket on it.
	FlowNew FlowChange = iota + 1
	// FlowUpdated is a change of state, status or mark.
	FlowUpdated
	// FlowGone is the end of an entry.
	FlowGone
	// FlowsLost reports that the reader was too slow and events were lost. Call Flows to learn the present state.
	FlowsLost
)

func (c FlowChange) String() string {
	return [...]string{"?", "new", "update", "destroy", "events lost"}[min(c, FlowsLost)]
}

// FlowEvent is one change of the table.
type FlowEvent struct {
	Change FlowChange
	Flow   Flow
}

// Events reports every change of the table until the context ends. It reports a socket error as FlowsLost, too.
func (c *Conntrack) Events(ctx context.Context) (<-chan FlowEvent, error) {
	l, err := c.listen()
	if err != nil {
		return nil, err
	}
	out := make(chan FlowEvent, 64)
	go func() {
		defer close(out)
		for l.forward(ctx, out) {
			l.close()
			if l, err = c.listen(); err != nil {
				return // the namespace is gone
			}
			select {
			case out <- FlowEvent{Change: FlowsLost}:
			case <-ctx.Done():
			}
		}
		l.close()
	}()
	return out, nil
}

// listener is a netlink socket with the library's reader, which ends at the first error.
type listener struct {
	conn   *conntrack.Conn
	events chan conntrack.Event
	failed chan error
}

func (c *Conntrack) listen() (*listener, error) {
	conn, err := conntrack.Dial(&netlink.Config{NetNS: c.ns.Fd()})
	if err != nil {
		return nil, fmt.Errorf("%s: open conntrack: %w", c.ns.Name(), err)
	}
	l := &listener{conn: conn, events: make(chan conntrack.Event, 1024)}
	if err = conn.SetReadBuffer(eventBuffer); err == nil {
		l.failed, err = conn.Listen(l.events, 1, netfilter.GroupsCT)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: listen for conntrack events: %w", c.ns.Name(), err), conn.Close())
	}
	return l, nil
}

// forward passes events on until the context ends (false) or the reader fails (true).
func (l *listener) forward(ctx context.Context, out chan<- FlowEvent) (failed bool) {
	for {
		select {
		case e := <-l.events:
			event, ok := eventFrom(e)
			if !ok {
				continue
			}
			select {
			case out <- event:
			case <-ctx.Done():
				return false
			}
		case err := <-l.failed:
			return err != nil && ctx.Err() == nil
		case <-ctx.Done():
			return false
		}
	}
}

// close ends the reader, which may be blocked on a send.
func (l *listener) close() {
	closed := make(chan error, 1)
	go func() { closed <- l.conn.Close() }()
	for {
		select {
		case <-l.events:
		case err := <-l.failed:
			_ = err // the listener is closing anyway
		case err := <-closed:
			_ = err // a netlink socket that cannot be closed is closed
			return
		}
	}
}

func eventFrom(e conntrack.Event) (FlowEvent, bool) {
	var change FlowChange
	switch e.Type {
	case conntrack.EventNew:
		change = FlowNew
	case conntrack.EventUpdate:
		change = FlowUpdated
	case conntrack.EventDestroy:
		change = FlowGone
	}
	if change == 0 || e.Flow == nil {
		return FlowEvent{}, false
	}
	return FlowEvent{change, flowFrom(e.Flow)}, true
}
