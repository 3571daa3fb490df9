// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/mdlayher/netlink"
	"github.com/ti-mo/conntrack"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// Flows deletes single UDP flows from the connection tracking of one namespace. It is safe for concurrent use.
type Flows struct {
	ns *netns.NS

	mu   sync.Mutex
	conn *conntrack.Conn // nil until it is needed
}

// FlowsOf returns the flows of a namespace. It opens nothing before it is needed.
func FlowsOf(ns *netns.NS) *Flows { return &Flows{ns: ns} }

// End deletes the flow between a server and a client, whose addresses are those that the server sees. The present rules
// translate the client's next datagram. End does nothing if there is no such flow.
func (f *Flows) End(client, server netip.AddrPort) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conn == nil {
		conn, err := conntrack.Dial(&netlink.Config{NetNS: f.ns.Fd()})
		if err != nil {
			return fmt.Errorf("%s: open connection tracking: %w", f.ns.Name(), err)
		}
		f.conn = conn
	}
	reply := conntrack.Tuple{
		IP: conntrack.IPTuple{SourceAddress: server.Addr(), DestinationAddress: client.Addr()},
		Proto: conntrack.ProtoTuple{
			Protocol: unix.IPPROTO_UDP, SourcePort: server.Port(), DestinationPort: client.Port(),
		},
	}
	// The kernel finds a flow by either of its tuples. The library derives the family from both.
	err := f.conn.Delete(conntrack.Flow{TupleOrig: reply, TupleReply: reply})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%s: delete the flow from %s to %s: %w", f.ns.Name(), client, server, err)
	}
	return nil
}

// Close closes what is open. The flows can be used again.
func (f *Flows) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conn == nil {
		return nil
	}
	err := f.conn.Close()
	f.conn = nil
	return err
}
