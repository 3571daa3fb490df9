// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/proxiers/keeper"
	"github.com/viplab/viplab/internal/proxiers/usable"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/proxiers/model"
	"github.com/viplab/viplab/suite/spec"
)

// probes remembers the schedulers that work. The default one stands for everything.
var probes usable.Memory[string, struct{}]

// probe finds out whether this machine can do it all with a scheduler, by doing it in an empty namespace.
func probe(ctx context.Context, scheduler string) error {
	for _, s := range []string{schedulers[0], scheduler} {
		_, err := probes.Try(s, func() (struct{}, error) {
			err := usable.InEmptyNamespace(func(ns *netns.NS, dir string) error { return try(ctx, ns, dir, s) })
			return struct{}{}, unusable(err, s)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// try makes a virtual server with a scheduler, or, with the default one, everything.
func try(ctx context.Context, ns *netns.NS, dir, scheduler string) error {
	if scheduler != schedulers[0] {
		return tryScheduler(ns, scheduler)
	}
	// These load the modules. That comes first: on a kernel without ip_vs the library speaks to nobody and hears success.
	if err := usable.Kernel(ctx, "ip_vs", "dummy"); err != nil {
		return err
	}
	for _, f := range []lab.Family{lab.V4, lab.V6} {
		if err := tryAll(ctx, ns, dir, f); err != nil {
			return err
		}
	}
	return nil
}

// unusable puts what a failure means into words.
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
	return usable.Explain(err)
}

// tryAll programs a state.
func tryAll(ctx context.Context, ns *netns.NS, dir string, f lab.Family) (err error) {
	port, pods := usable.Sample(f)
	state := &model.State{Services: []*model.Service{{Ports: []*model.Port{port}}}}
	k, err := open(ns, rules{family: f, podRange: pods}, schedulers[0], dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.close()) }()
	m := &family{kernel: k, want: newDesired()}
	if err := m.Program(ctx, state, keeper.Place{Local: []netip.Addr{pods.Addr()}}); err != nil {
		return err
	}
	// What counts is what the kernel says it holds.
	if err := k.servers.load(k.listed); err != nil {
		return err
	}
	if got, want := len(k.servers.have), len(m.want.servers); got != want {
		return fmt.Errorf("%d virtual servers were made, and the kernel shows %d", want, got)
	}
	return nil
}

func tryScheduler(ns *netns.NS, scheduler string) error {
	s, err := newServers(ns, lab.V4, scheduler, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.load(func(frontend) bool { return false }); err != nil {
		return err
	}
	return s.set(frontend{netip.MustParseAddrPort("192.0.2.1:80"), unix.IPPROTO_TCP}, &server{})
}
