// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/mdlayher/netlink"
	"github.com/ti-mo/conntrack"
	"github.com/ti-mo/netfilter"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// mirror holds the UDP flows that a namespace tracks. The kernel reports each flow that begins or ends before the
// packet continues, so the mirror need not list them. A list takes tens of milliseconds of CPU time even without flows,
// because the kernel walks the table that all namespaces share (ctnetlink_dump_table).
type mirror struct {
	ns       *netns.NS
	requests *conntrack.Conn
	events   *netlink.Conn
	raw      syscall.RawConn // of events
	buffer   []byte
	silent   bool                       // the kernel reports no events
	flows    map[netip.AddrPort]replies // by where they were sent to
}

// replies are the reply tuples of the flows to one destination.
type replies map[origin]conntrack.Tuple

// origin identifies a flow.
type origin struct {
	conntrack.Tuple
	zone uint16
}

// eventBuffer is the size of the kernel's buffer of unread events in bytes, enough for some thousand flows. If it
// overflows, the mirror lists the flows.
const eventBuffer = 8 << 20

// newMirror makes a mirror of a namespace's flows.
func newMirror(ns *netns.NS) (*mirror, error) {
	m, err := listen(ns)
	if err == nil {
		err = m.list()
	}
	if err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

// listen makes an empty mirror that receives all events from now on. The caller closes it even after an error.
func listen(ns *netns.NS) (*mirror, error) {
	m := &mirror{ns: ns, buffer: make([]byte, 64<<10), flows: map[netip.AddrPort]replies{}}
	return m, m.open()
}

func (m *mirror) open() (err error) {
	if m.requests, err = conntrack.Dial(&netlink.Config{NetNS: m.ns.Fd()}); err != nil {
		return fmt.Errorf("open connection tracking: %w", err)
	}
	if m.events, err = netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: m.ns.Fd()}); err != nil {
		return fmt.Errorf("open a socket for conntrack events: %w", err)
	}
	if m.raw, err = m.events.SyscallConn(); err != nil {
		return fmt.Errorf("open a socket for conntrack events: %w", err)
	}
	if err := m.events.SetReadBuffer(eventBuffer); err != nil {
		return fmt.Errorf("set SO_RCVBUF: %w", err)
	}
	filter, err := bpf.Assemble(udpOnly)
	if err != nil {
		return fmt.Errorf("assemble the filter of events: %w", err)
	}
	if err := m.events.SetBPF(filter); err != nil {
		return fmt.Errorf("set SO_ATTACH_FILTER: %w", err)
	}
	for _, g := range []netfilter.NetlinkGroup{netfilter.GroupCTNew, netfilter.GroupCTDestroy} {
		if err := m.events.JoinGroup(uint32(g)); err != nil {
			return fmt.Errorf("set NETLINK_ADD_MEMBERSHIP: %w", err)
		}
	}
	told, err := m.ns.Sysctl("net.netfilter.nf_conntrack_events")
	m.silent = err != nil || told == "0" // the kernel was built without events, or they are switched off
	return nil
}

func (m *mirror) close() error {
	var errs []error
	if m.requests != nil {
		errs = append(errs, m.requests.Close())
	}
	if m.events != nil {
		errs = append(errs, m.events.Close())
	}
	return errors.Join(errs...)
}

// The place of a flow's protocol in an event: after a nlmsghdr and a nfgenmsg, in nested attributes
// (linux/netfilter/nfnetlink.h, nfnetlink_conntrack.h).
const (
	sizeofNfgenmsg = 4
	ctaTupleOrig   = 1
	ctaTupleProto  = 2
	ctaProtoNum    = 1
)

// udpOnly is a filter that accepts only the events of UDP flows.
var udpOnly = []bpf.Instruction{
	bpf.LoadConstant{Dst: bpf.RegA, Val: unix.SizeofNlMsghdr + sizeofNfgenmsg},
	bpf.LoadConstant{Dst: bpf.RegX, Val: ctaTupleOrig}, bpf.LoadExtension{Num: bpf.ExtNetlinkAttr},
	bpf.LoadConstant{Dst: bpf.RegX, Val: ctaTupleProto}, bpf.LoadExtension{Num: bpf.ExtNetlinkAttrNested},
	bpf.LoadConstant{Dst: bpf.RegX, Val: ctaProtoNum}, bpf.LoadExtension{Num: bpf.ExtNetlinkAttrNested},
	bpf.TAX{}, bpf.LoadIndirect{Off: unix.SizeofNlAttr, Size: 1},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_UDP, SkipFalse: 1},
	bpf.RetConstant{Val: 1 << 18},
	bpf.RetConstant{Val: 0},
}

// update reads the events since the last call. It lists the flows if events were lost, or if there are none.
func (m *mirror) update() error {
	if m.silent {
		return m.list()
	}
	err := m.read()
	if errors.Is(err, unix.ENOBUFS) {
		return m.list()
	}
	return err
}

// lists is the maximum number of attempts to list the flows without losing events.
const lists = 100

// list fills the mirror anew.
func (m *mirror) list() (err error) {
	for range lists {
		if err = m.read(); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return err
		}
		// An event from here on is newer than the list, or part of it.
		if err = m.dump(); err == nil {
			err = m.read()
		}
		if !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return err
		}
	}
	return fmt.Errorf("list the flows %d times: %w", lists, err)
}

// dump lists the flows, if the namespace has any.
func (m *mirror) dump() error {
	m.flows = map[netip.AddrPort]replies{}
	if untracked(m.ns) {
		return nil
	}
	flows, err := m.requests.Dump(nil)
	if err != nil {
		return fmt.Errorf("list the flows: %w", err)
	}
	for i := range flows {
		m.note(&flows[i])
	}
	return nil
}

// untracked reports whether a namespace tracks no flow of any protocol.
func untracked(ns *netns.NS) bool {
	count, err := ns.Sysctl("net.netfilter.nf_conntrack_count")
	return err == nil && count == "0"
}

func (m *mirror) note(f *conntrack.Flow) {
	if f.TupleOrig.Proto.Protocol != unix.IPPROTO_UDP {
		return
	}
	to := sentTo(&f.TupleOrig)
	if m.flows[to] == nil {
		m.flows[to] = replies{}
	}
	m.flows[to][origin{f.TupleOrig, f.Zone}] = f.TupleReply
}

// forget removes a flow, and its destination with the last one.
func (m *mirror) forget(o origin) {
	to := sentTo(&o.Tuple)
	delete(m.flows[to], o)
	if len(m.flows[to]) == 0 {
		delete(m.flows, to)
	}
}

// sentTo returns where the first packet of a flow was sent to.
func sentTo(orig *conntrack.Tuple) netip.AddrPort {
	return netip.AddrPortFrom(orig.IP.DestinationAddress.Unmap(), orig.Proto.DestinationPort)
}

// read reads all queued events. It returns ENOBUFS if some were lost.
func (m *mirror) read() error {
	lost := false
	for {
		message, err := m.receive()
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOBUFS):
			lost = true
			continue
		case errors.Is(err, unix.EAGAIN) && lost:
			return unix.ENOBUFS
		case errors.Is(err, unix.EAGAIN):
			return nil
		case err != nil:
			return fmt.Errorf("read conntrack events: %w", err)
		}
		if err := m.take(message); err != nil {
			return fmt.Errorf("read a conntrack event: %w", err)
		}
	}
}

// receive receives one event, which is one datagram.
func (m *mirror) receive() (message netlink.Message, err error) {
	n := 0
	if failed := m.raw.Control(func(fd uintptr) {
		n, _, err = unix.Recvfrom(int(fd), m.buffer, unix.MSG_DONTWAIT)
	}); failed != nil {
		return message, failed
	}
	if err == nil {
		err = message.UnmarshalBinary(m.buffer[:n])
	}
	return message, err
}

func (m *mirror) take(message netlink.Message) error {
	var e conntrack.Event
	if err := e.Unmarshal(message); err != nil {
		return err
	}
	switch e.Type {
	case conntrack.EventNew:
		m.note(e.Flow)
	case conntrack.EventDestroy:
		m.forget(origin{e.Flow.TupleOrig, e.Flow.Zone})
	}
	return nil
}
