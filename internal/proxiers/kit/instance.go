// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"

	"github.com/viplab/viplab/internal/proxiers/conntrack"
	"github.com/viplab/viplab/internal/proxiers/healthcheck"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/proxiers/model"
	"github.com/viplab/viplab/suite/spec"
)

// instance is a proxier on one node.
type instance struct {
	spec.Undisturbed

	proxier  *Proxier
	node     spec.Node
	events   *Recorder
	families []*family
	tracking *conntrack.Cleaner
	sysctls  sysctls
	writes   writes
	// takeOverFrom is the other mode, until its rules have been removed.
	takeOverFrom *Proxier
}

// Apply implements spec.Instance. A family that fails does not hold up the other.
func (in *instance) Apply(ctx context.Context, want *store.Snapshot) error {
	err := in.each(func(f *family) error { return f.late.record(f.apply(ctx, want)) })
	if err := errors.Join(err, in.removeStaleFlows(ctx)); err != nil || in.takeOverFrom == nil {
		return err
	}
	if err := in.takeOverFrom.removeFrom(ctx, in.node); err != nil {
		return fmt.Errorf("%s: take over from %s: %w", in.node.Name, in.takeOverFrom.Name(), err)
	}
	in.takeOverFrom = nil
	return nil
}

// removeStaleFlows removes conntrack entries that lead to removed endpoints.
func (in *instance) removeStaleFlows(ctx context.Context) error {
	var wanted []*conntrack.Wanted
	for _, f := range in.families {
		wanted = append(wanted, f.wantedFlows())
	}
	if err := in.tracking.Clean(ctx, wanted...); err != nil {
		return err
	}
	for _, f := range in.families {
		f.tracked = f.programmed
	}
	return nil
}

func (in *instance) Dump(ctx context.Context, w io.Writer) error {
	var out bytes.Buffer
	for _, e := range in.events.lines() {
		fmt.Fprintf(&out, "# Event %s\n", strings.ReplaceAll(e, "\n", "\n#   "))
	}
	for _, f := range in.families {
		text, err := f.mechanism.Dump(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(&out, "# IP%s\n%s", f.ip, text)
	}
	_, err := out.WriteTo(w)
	return err
}

// Stop implements spec.Instance. A built-in proxier removes its rules when it stops.
func (in *instance) Stop(ctx context.Context) error { return in.Cleanup(ctx) }

func (in *instance) Cleanup(ctx context.Context) error {
	err := in.each(func(f *family) error { return f.remove(ctx) })
	if in.proxier.Device != "" {
		err = errors.Join(err, removeDevice(in.node.Host.NS, in.proxier.Device))
	}
	return errors.Join(err, in.sysctls.restore(in.node.Host.NS), in.Kill(ctx))
}

func (in *instance) Kill(context.Context) error {
	errs := []error{in.tracking.Close()}
	for _, f := range in.families {
		errs = append(errs, f.health.Close(), f.addrs.Close(), f.mechanism.Release())
	}
	return errors.Join(errs...)
}

// removeDevice removes a device, if it exists.
func removeDevice(ns *netns.NS, name string) error {
	link, err := ns.Netlink().LinkByName(name)
	if err == nil {
		err = ns.Netlink().LinkDel(link)
	}
	if missing := (netlink.LinkNotFoundError{}); err != nil && !errors.As(err, &missing) {
		return fmt.Errorf("%s: remove %s: %w", ns.Name(), name, err)
	}
	return nil
}

// healthPortTaken records that another program has a health check port, with kube-proxy's reason. The Service itself
// works, and the next sync tries again.
func (in *instance) healthPortTaken(c healthcheck.Check, err error) {
	in.events.Warn(c.Namespace, c.Name, "FailedToStartServiceHealthcheck",
		fmt.Sprintf("the health check port %d is not served on node %s: %v. "+
			"Stop the program that has it, or give the Service another one", c.Port, in.node.Name, err))
}

// refused records that the mechanism of a family refuses a Service.
func (in *instance) refused(ip lab.Family) func(*model.Service, error) {
	return func(s *model.Service, err error) {
		in.events.Warn(s.Namespace, s.Name, "FailedToProgram",
			fmt.Sprintf("not served on node %s by IP%s, until it changes: %v", in.node.Name, ip, err))
	}
}

// each runs do for all families concurrently.
func (in *instance) each(do func(*family) error) error {
	return Each(in.families, func(f *family) error {
		if err := do(f); err != nil {
			return fmt.Errorf("%s: IP%s: %w", in.node.Name, f.ip, err)
		}
		return nil
	})
}

// Each runs do for all items concurrently. One that fails does not hold up the others.
func Each[T any](items []T, do func(T) error) error {
	errs := make([]error, len(items))
	var all sync.WaitGroup
	for i, item := range items {
		all.Go(func() { errs[i] = do(item) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Place holds the addresses of a node, and those that serve NodePorts. Nil NodePorts mean all, later ones included.
type Place struct{ Local, NodePorts []netip.Addr }

// ReachableNodePorts returns the addresses that serve NodePorts, without loopback addresses.
func (p Place) ReachableNodePorts() []netip.Addr {
	if p.NodePorts == nil {
		return WithoutLoopback(p.Local)
	}
	return WithoutLoopback(p.NodePorts)
}

// WithoutLoopback returns the addresses that are not loopback addresses.
func WithoutLoopback(addrs []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(addrs), netip.Addr.IsLoopback)
}

// sysctls changes sysctls of a node and remembers their former values.
type sysctls struct{ before []netns.Setting }

// set changes settings. It skips those that the kernel does not have.
func (s *sysctls) set(ns *netns.NS, settings ...netns.Setting) error {
	for _, want := range settings {
		old, err := ns.Sysctl(want.Key)
		switch {
		case errors.Is(err, fs.ErrNotExist), err == nil && old == want.Value:
			continue
		case err != nil:
			return err
		}
		if err := ns.SetSysctls(want); err != nil {
			return err
		}
		s.before = append(s.before, netns.Setting{Key: want.Key, Value: old})
	}
	return nil
}

// restore resets all settings to their former values.
func (s *sysctls) restore(ns *netns.NS) error {
	slices.Reverse(s.before)
	err := ns.SetSysctls(s.before...)
	s.before = nil
	return err
}
