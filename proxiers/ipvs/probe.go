// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/proxiers/dnat"
	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/proxiers/model"
	"github.com/viplab/viplab/suite/spec"
)

// probe programs a sample with the default scheduler.
func probe(ctx context.Context, ns *netns.NS, dir string, f lab.Family) error {
	// This loads the modules. It comes first, because the library reports success on a kernel without ip_vs.
	if err := kit.NeedKernel(ctx, "ip_vs", "dummy"); err != nil {
		return err
	}
	return unusable(tryAll(ctx, ns, dir, f), schedulers[0])
}

// probeScheduler returns an error if the kernel lacks a scheduler.
func probeScheduler(scheduler string) error {
	return kit.Probe("ipvs scheduler "+scheduler, func(ns *netns.NS, _ string) error {
		return unusable(tryScheduler(ns, scheduler), scheduler)
	})
}

// unusable returns the error for a failed probe.
func unusable(err error, scheduler string) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return &spec.UnusableError{
			Missing: "the right to set up IPVS over netlink",
			Cure:    "run as root: the kernel grants it in no other user namespace than the first",
		}
	case errors.Is(err, unix.ENOENT):
		return &spec.UnusableError{
			Missing: "the kernel module ip_vs_" + scheduler, Cure: "load it, or use a kernel that has it (scripts/vm)",
		}
	}
	return err
}

// tryAll programs a state and compares it with the kernel's state afterwards.
func tryAll(ctx context.Context, ns *netns.NS, dir string, f lab.Family) (err error) {
	if err := loopbackUp(ns); err != nil {
		return err
	}
	port, pods := kit.Sample(f)
	state := &model.State{Services: []*model.Service{{Ports: []*model.Port{port}}}}
	mark := spec.ProxyConfig{}.MasqueradeMark()
	r := rules{family: f, mark: mark, deliver: deliveryMark(mark), podRange: pods, nodePods: pods}
	k, err := open(ns, r, schedulers[0], dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.close()) }()
	m := &family{kernel: k, want: newDesired(translator{dnat.Chains{NodePods: pods}, r.deliver})}
	if err := m.Program(ctx, state, kit.Place{Local: []netip.Addr{pods.Addr()}}); err != nil {
		return err
	}
	if err := k.servers.load(k.listed); err != nil {
		return err
	}
	if got, want := len(k.servers.have), len(m.want.servers.Ledger); got != want {
		return fmt.Errorf("%d virtual servers were made, and the kernel shows %d", want, got)
	}
	return nil
}

// loopbackUp sets lo up, which every node has done: IPv6 has no routes by a device that is down.
func loopbackUp(ns *netns.NS) error {
	lo, err := ns.Netlink().LinkByName("lo")
	if err == nil {
		err = ns.Netlink().LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("%s: set lo up: %w", ns.Name(), err)
	}
	return nil
}

func tryScheduler(ns *netns.NS, scheduler string) error {
	s, err := newServers(ns, lab.V4, scheduler, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer s.handle.Close()
	if err := s.load(func(frontend) bool { return false }); err != nil {
		return err
	}
	return s.set(frontend{netip.MustParseAddrPort("192.0.2.1:80"), unix.IPPROTO_TCP}, &server{})
}
