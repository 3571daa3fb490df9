package link

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// Ready returns when the devices, which are veth ends and bridges with such a port, carry packets: name the ports of a
// bridge before the bridge. Tunnels have no carrier to wait for.
//
// That a device is up does not mean so. The kernel notices a carrier in a work queue that it lets run once a second at
// most ("linkwatch"), and until then the device swallows what it is sent: the classic first packet that is a second
// late. A question about one device makes a newer kernel do that work at once; with an older one Ready waits for the
// kernel's notification.
func Ready(ctx context.Context, ns *netns.NS, devices ...Dev) error {
	var late []Dev
	for _, d := range devices {
		state, err := query(ns, d)
		if err != nil {
			return err
		}
		if !state.carries() {
			late = append(late, d)
		}
	}
	if len(late) == 0 {
		return nil
	}
	return await(ctx, ns, late)
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

func (s state) carries() bool { return s.flags&unix.IFF_UP != 0 && s.operstate == operUp }

// query asks for one device, by index, or by name where that is 0.
func query(ns *netns.NS, d Dev) (state, error) {
	r := &request{}
	m := r.begin(unix.RTM_GETLINK, 0)
	r.link(0, d.Index, 0, 0)
	if d.Index == 0 {
		r.text(unix.IFLA_IFNAME, d.Name)
	}
	r.u32(unix.IFLA_EXT_MASK, filterNoCounts)
	r.end(m)
	seq := sequence.Add(1)
	r.number(seq)
	var found state
	err := ns.Exchange(r.b, func(datagram []byte) (bool, error) {
		return eachMessage(datagram, func(m reply) (bool, error) {
			switch {
			case m.seq() != seq:
				return false, nil
			case m.typ() == unix.NLMSG_ERROR:
				return true, m.err()
			}
			found = m.state()
			return true, nil
		})
	})
	if err != nil {
		return state{}, fmt.Errorf("%s: device %s: %w", ns.Name(), d.Name, err)
	}
	return found, nil
}

// state reads an RTM_NEWLINK.
func (m reply) state() state {
	s := state{index: int(host.Uint32(m.nlmsg[20:])), flags: host.Uint32(m.nlmsg[24:])}
	for typ, value := range attrs(m.nlmsg[32:]) {
		if typ == unix.IFLA_OPERSTATE && len(value) == 1 {
			s.operstate = value[0]
		}
	}
	return s
}

// await waits for the kernel to report that the devices carry packets.
func await(ctx context.Context, ns *netns.NS, devices []Dev) error {
	events, err := ns.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(events)
	if err := unix.Bind(events, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_LINK}); err != nil {
		return fmt.Errorf("%s: subscribe to link events: %w", ns.Name(), err)
	}
	for _, d := range devices {
		for {
			state, err := query(ns, d)
			if err != nil {
				return err
			}
			if state.carries() {
				break
			}
			if err := nextEvent(ctx, events); err != nil {
				return fmt.Errorf("%s: %s carries no packets (state %d): %w", ns.Name(), d.Name, state.operstate, err)
			}
		}
	}
	return nil
}

// nextEvent returns when something was reported since the last call. What it was does not matter: the caller asks.
func nextEvent(ctx context.Context, events int) error {
	const heartbeat = 100 // ms between looks at the context
	var buf [32 << 10]byte
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(events), Events: unix.POLLIN}}, heartbeat)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if n <= 0 {
			continue
		}
		_, err = unix.Read(events, buf[:])
		if errors.Is(err, unix.ENOBUFS) { // some were lost, so there were some
			return nil
		}
		return err
	}
}
