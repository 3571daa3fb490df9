// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// Condition is an effect that a change has only some time after the kernel has acknowledged it.
type Condition interface {
	// String says what is wanted: "eth0 carries packets".
	fmt.Stringer
	holds(ns *netns.NS) (bool, error)
}

// readyLimit bounds the wait for conditions, which is a matter of milliseconds unless something is wrong.
const readyLimit = 2 * time.Minute

// Ready returns when all conditions hold. It waits for events only if one does not, and for two minutes at most.
func Ready(ctx context.Context, ns *netns.NS, conditions ...Condition) error {
	var late []Condition
	for _, c := range conditions {
		holds, err := c.holds(ns)
		if err != nil {
			return fmt.Errorf("%s: whether %s: %w", ns.Name(), c, err)
		}
		if !holds {
			late = append(late, c)
		}
	}
	if len(late) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, readyLimit, fmt.Errorf("%s have passed", readyLimit))
	defer cancel()
	return await(ctx, ns, late)
}

// Consequences returns the conditions that changes lead to sooner or later.
func Consequences(ops ...Op) []Condition {
	var out []Condition
	for _, op := range ops {
		switch op := op.(type) {
		case Up:
			if op.Dev != Loopback {
				out = append(out, Carries(op))
			}
		case ProxyARP:
			out = append(out, Carries(op))
		case Port:
			out = append(out, Carries{op.Dev})
			if bridge := (Carries{op.Bridge}); !slices.Contains(out, Condition(bridge)) {
				out = append(out, bridge)
			}
		case Addr:
			if op.Prefix.Addr().Is6() {
				out = append(out, Local{op.Dev, op.Prefix.Addr()})
			}
		}
	}
	return out
}

// Carries is the condition that a veth end, or a bridge after its ports, carries packets. Tunnels need no such wait.
//
// A device that is up may not carry packets yet. The kernel notices a carrier in a work queue that runs once a second
// at most ("linkwatch"), and until then the device drops what it should send: the classic first packet that is a
// second late. A query for the device makes a newer kernel do that work at once; an older one sends an event later.
type Carries struct{ Dev }

func (c Carries) String() string { return c.Name + " carries packets" }

func (c Carries) holds(ns *netns.NS) (bool, error) {
	s, err := query(ns, c.Dev)
	return s.flags&unix.IFF_UP != 0 && s.operstate == operUp, err
}

// Local is the condition that the namespace answers to an IPv6 address. The kernel leaves the route that makes it local
// to a work queue, and until then drops or forwards packets to it. IPv4 needs no such wait.
type Local struct {
	Dev
	Addr netip.Addr
}

func (l Local) String() string { return fmt.Sprintf("%s dev %s is local", l.Addr, l.Name) }

func (l Local) holds(ns *netns.NS) (bool, error) {
	r := &request{}
	r.message(unix.RTM_GETROUTE, 0, func() {
		r.b = append(r.b, unix.AF_INET6, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) // struct rtmsg
		r.addr(unix.RTA_DST, l.Addr)
		r.u32(unix.RTA_OIF, uint32(l.Index))
	})
	local := false
	err := ask(ns, r, func(m nlmsg) { local = m[unix.SizeofNlMsghdr+7] == unix.RTN_LOCAL })
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) {
		return false, nil
	}
	return local, err
}

// state is what the kernel says about a device.
type state struct {
	index     int
	operstate byte
	flags     uint32
}

// From include/uapi/linux/if.h and rtnetlink.h. A new device is in the state unknown until the kernel first looked.
const (
	operUp         = 6      // IF_OPER_UP
	filterNoCounts = 1 << 3 // RTEXT_FILTER_SKIP_STATS
)

// query asks for one device, by index, or by name where that is 0.
func query(ns *netns.NS, d Dev) (state, error) {
	r := &request{}
	r.message(unix.RTM_GETLINK, 0, func() {
		r.ifinfo(0, d.Index, 0, 0)
		if d.Index == 0 {
			r.text(unix.IFLA_IFNAME, d.Name)
		}
		r.u32(unix.IFLA_EXT_MASK, filterNoCounts)
	})
	var found state
	err := ask(ns, r, func(m nlmsg) {
		found.index, found.flags = int(host.Uint32(m[20:])), host.Uint32(m[24:])
		for typ, value := range attrs(m[32:]) {
			if typ == unix.IFLA_OPERSTATE && len(value) == 1 {
				found.operstate = value[0]
			}
		}
	})
	return found, err
}

// ask sends one question and hands the answer to read.
func ask(ns *netns.NS, r *request, read func(nlmsg)) error {
	seq := sequence.Add(1)
	r.number(seq)
	return ns.Exchange(r.b, func(datagram []byte) (bool, error) {
		return eachMessage(datagram, func(m nlmsg) (bool, error) {
			switch {
			case m.seq() != seq:
				return false, nil
			case m.typ() == unix.NLMSG_ERROR:
				return true, m.err()
			}
			read(m)
			return true, nil
		})
	})
}

// await waits for conditions. It checks them again after it has subscribed to events, so that it misses none.
func await(ctx context.Context, ns *netns.NS, conditions []Condition) error {
	events, err := ns.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(events)
	groups := unix.SockaddrNetlink{Family: unix.AF_NETLINK,
		Groups: unix.RTMGRP_LINK | unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_IPV6_ROUTE}
	if err := unix.Bind(events, &groups); err != nil {
		return fmt.Errorf("%s: subscribe to link events: %w", ns.Name(), err)
	}
	for _, c := range conditions {
		for {
			holds, err := c.holds(ns)
			if holds {
				break
			}
			if err == nil {
				err = nextEvent(ctx, events)
			}
			if err != nil {
				return fmt.Errorf("%s: until %s: %w", ns.Name(), c, err)
			}
		}
	}
	return nil
}

// nextEvent returns after an event, whatever it is, or after a short time, because the kernel has no event for some of
// what makes a route usable. The caller checks its condition again.
func nextEvent(ctx context.Context, events int) error {
	const heartbeat = 100 // ms
	var buf [32 << 10]byte
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(events), Events: unix.POLLIN}}, heartbeat)
	if err != nil && !errors.Is(err, unix.EINTR) {
		return err
	}
	if n <= 0 {
		return nil
	}
	_, err = unix.Read(events, buf[:])
	if errors.Is(err, unix.ENOBUFS) { // some were lost, so there were some
		return nil
	}
	return err
}
