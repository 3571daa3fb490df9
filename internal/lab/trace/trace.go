// SPDX-License-Identifier: Apache-2.0

// Package trace follows a packet through the namespaces of a lab: the devices and the rules that it passes, what
// changes it, and what ends it. It needs nothing of the programs whose rules it shows and adds nothing to their tables.
//
// A table of its own sets the trace bit of packets (meta nftrace), and its empty chains show the packet between the
// chains of others. The kernel tells of every rule of nftables and iptables-nft that a packet with the bit meets, and
// logs those of iptables-legacy to NFLOG group 0. Captures show the packet at the devices.
package trace

import (
	"context"
	"errors"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/lab/ruleset"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/observe"
)

// Tracer records what happens to packets until End.
type Tracer struct {
	spots []*spot
}

// spot is a namespace. Only nodes have rules.
type spot struct {
	ns       *netns.NS
	capture  *observe.Capture
	rules    *ruleset.Ruleset // nil for others than nodes
	probes   []probe
	tables   []*socket // whose tables hold the probes
	listener *listener
	logger   netns.Setting // as it was

	before, after map[string]uint64 // counters of the kernel

	records []record // of the rules
	ipvs    []connection

	decode  sync.Once
	decoded []sighting // of the capture, see frames
}

// readTries is how often a table is read again if it changes meanwhile.
const readTries = 3

// loggerOf holds the program that logs the packets of a family, for each network namespace.
var loggerOf = map[string]string{ruleset.IP: "net.netfilter.nf_log.2", ruleset.IP6: "net.netfilter.nf_log.10"}

// Start prepares nodes and other places, of which it only records devices. Rules returns the rules of a node; it is
// called concurrently. The caller ends the Tracer.
func Start(ctx context.Context, nodes, others []*netns.NS, family string, s Select,
	rules func(*netns.NS) (*ruleset.Ruleset, error)) (*Tracer, error) {
	t := &Tracer{}
	for _, ns := range others {
		t.spots = append(t.spots, &spot{ns: ns})
	}
	var prepared errgroup.Group
	for _, ns := range nodes {
		p := &spot{ns: ns}
		t.spots = append(t.spots, p)
		prepared.Go(func() error { return p.prepare(ctx, family, s, rules) })
	}
	if err := prepared.Wait(); err != nil {
		return nil, errors.Join(err, t.End(ctx))
	}
	for _, p := range t.spots {
		var err error
		if p.capture, err = observe.StartCapture(p.ns); err == nil {
			p.before, err = counters(p.ns)
		}
		if err != nil {
			return nil, errors.Join(err, t.End(ctx))
		}
	}
	return t, nil
}

// prepare makes the probes of a node.
func (p *spot) prepare(ctx context.Context, family string, s Select,
	rules func(*netns.NS) (*ruleset.Ruleset, error)) (err error) {
	if p.rules, err = rules(p.ns); err != nil {
		return err
	}
	if err := p.rules.AddHandles(ctx, p.ns); err != nil {
		return err
	}
	groups := []uint16{ownGroup}
	if p.hasLegacy(family) {
		groups = append(groups, legacyGroup)
	}
	if p.listener, err = listen(p.ns, groups...); err != nil {
		return err
	}
	if p.hasLegacy(family) {
		if err := p.logLegacy(family); err != nil {
			return err
		}
	}
	p.probes = probesFor(p.rules, family)
	for _, t := range tables(p.probes, s, family, p.rules.Tracks(family)) {
		owner, err := t.install(p.ns)
		if t.family == unix.NFPROTO_BRIDGE && errors.Is(err, unix.EOPNOTSUPP) {
			continue // a kernel without nf_tables_bridge: the packet is first seen at prerouting of IP
		}
		if err != nil {
			return err
		}
		p.tables = append(p.tables, owner)
	}
	return nil
}

func (p *spot) hasLegacy(family string) bool {
	for _, t := range p.rules.Tables {
		if t.Backend == ruleset.IptablesLegacy && t.Family == family {
			return true
		}
	}
	return false
}

// logLegacy makes the kernel log the rules of legacy tables to NFLOG.
func (p *spot) logLegacy(family string) error {
	key := loggerOf[family]
	value, err := p.ns.Sysctl(key)
	if err != nil {
		return err
	}
	p.logger = netns.Setting{Key: key, Value: value}
	return p.ns.SetSysctls(netns.Setting{Key: key, Value: "nfnetlink_log"})
}

// refresh reads the tables again that have changed meanwhile, as far as the packets have met such rules.
func (p *spot) refresh(ctx context.Context) error {
	if p.rules == nil {
		return nil
	}
	for range readTries {
		changed := p.changed()
		for _, t := range changed {
			if err := t.Refresh(ctx, p.ns); err != nil {
				return err
			}
		}
		if len(changed) == 0 {
			break
		}
	}
	return nil
}

// changed returns the tables with rules that packets have met and that are not known.
func (p *spot) changed() (tables []*ruleset.Table) {
	for _, t := range p.rules.Tables {
		if t.Backend == ruleset.IptablesLegacy {
			continue
		}
		known := map[uint64]bool{}
		for _, c := range t.Chains {
			for _, r := range c.Rules {
				known[r.Handle] = true
			}
		}
		if slices.ContainsFunc(p.records, func(r record) bool {
			m := r.message
			return m != nil && m.kind == kindRule && m.handle != 0 && !known[m.handle] &&
				m.table == t.Name && families[m.family] == t.Family
		}) {
			tables = append(tables, t)
		}
	}
	return tables
}

// End removes the probes and restores what Start has changed, even if the context has ended. What was recorded stays.
func (t *Tracer) End(ctx context.Context) error {
	errs := make([]error, len(t.spots))
	var ending sync.WaitGroup // the kernel takes its time to close the sockets of captures
	for i, p := range t.spots {
		ending.Go(func() { errs[i] = p.end(context.WithoutCancel(ctx)) })
	}
	ending.Wait()
	return errors.Join(errs...)
}

// Captures returns what the devices of all places saw, other packets included.
func (t *Tracer) Captures() (all []*observe.Capture) {
	for _, p := range t.spots {
		if p.capture != nil {
			all = append(all, p.capture)
		}
	}
	return all
}

func (p *spot) end(ctx context.Context) (err error) {
	var errs []error
	for _, t := range p.tables {
		errs = append(errs, t.close())
	}
	if p.listener != nil {
		p.records, err = p.listener.end()
		errs = append(errs, err, p.refresh(ctx))
	}
	if p.logger.Key != "" {
		errs = append(errs, p.ns.SetSysctls(p.logger))
	}
	p.after, err = counters(p.ns)
	errs = append(errs, err)
	if p.rules != nil && len(p.rules.Servers) > 0 {
		p.ipvs, err = connections(p.ns)
		errs = append(errs, err)
	}
	if p.capture != nil {
		errs = append(errs, p.capture.Close())
	}
	return errors.Join(errs...)
}
