// SPDX-License-Identifier: Apache-2.0

// Package kit is what the built-in proxiers share. A proxier is a Definition: a name, features, a probe, and a
// Mechanism that programs one IP family of a node. The kit makes a spec.Proxier of it and does everything else: it
// builds the model of the cluster for each family, leaves out Services that the kernel refuses, serves health check
// ports, removes connection tracking entries of removed endpoints, sets sysctls, and takes nodes over from another
// mode.
package kit

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/viplab/viplab/internal/proxiers/conntrack"
	"github.com/viplab/viplab/internal/proxiers/healthcheck"
	"github.com/viplab/viplab/internal/proxiers/nodeaddr"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/proxiers/model"
	"github.com/viplab/viplab/suite/spec"
)

// Definition describes a proxier.
type Definition struct {
	Name     string
	Features spec.FeatureSet
	// Probe programs a sample into an empty namespace. dir is a directory for its files.
	Probe func(ctx context.Context, ns *netns.NS, dir string, f lab.Family) error
	// New makes the mechanism of one family of a node.
	New func(ctx context.Context, site Site) (Mechanism, error)
	// Settings returns the sysctls that the mechanism needs beside those that every proxier sets. Nil means none.
	Settings func(node spec.Node) []netns.Setting
	// Relays is set if connections end in the proxier, so that no conntrack entry leads to an endpoint.
	Relays bool
	// Device names a device that the families of a node share, empty if there is none. Its addresses do not count as
	// the node's own, and it is removed last.
	Device string
	// Present reports whether the namespace holds rules of the proxier. Only proxiers that are modes of each other need
	// it.
	Present func(ns *netns.NS, f lab.Family) (bool, error)
}

// Site is where a mechanism works: one family of a node.
type Site struct {
	spec.Node
	Family lab.Family
	// Events records what users should know about single Services. Instance.Dump begins with them.
	Events *Recorder
}

// Mechanism programs one IP family of a node. Its methods are not called concurrently.
type Mechanism interface {
	// Program makes the kernel hold the state. After an error the mechanism assumes nothing about the kernel, and the
	// next call rewrites everything. A call with the same state, by identity, and the same place costs next to nothing.
	Program(ctx context.Context, state *model.State, at Place) error
	// Dump returns what is programmed, for people.
	Dump(ctx context.Context) ([]byte, error)
	// Remove removes everything that this instance of the mechanism and earlier ones programmed.
	Remove(ctx context.Context) error
	// Release closes sockets and connections; what is programmed stays. It is called last, also after Remove.
	Release() error
}

// Proxier is a spec.Proxier made of a Definition.
type Proxier struct {
	Definition
	other *Proxier
}

// New makes the proxier that d describes.
func New(d Definition) *Proxier { return &Proxier{Definition: d} }

// Pair makes two proxiers modes of each other. As soon as one serves a node, it removes the rules of the other from it.
// kube-proxy clears the node first; here the node serves all the time.
func Pair(a, b *Proxier) { a.other, b.other = b, a }

// Name implements spec.Proxier.
func (p *Proxier) Name() string { return p.Definition.Name }

// Features implements spec.Proxier.
func (p *Proxier) Features() spec.FeatureSet {
	if p.other == nil {
		return p.Definition.Features
	}
	return p.Definition.Features.With(spec.ModeSwitch)
}

// Other implements spec.Proxier.
func (p *Proxier) Other() spec.Proxier {
	if p.other == nil {
		return nil
	}
	return p.other
}

// Usable implements spec.Proxier.
func (p *Proxier) Usable(ctx context.Context, families ...lab.Family) error {
	if len(families) == 0 {
		families = []lab.Family{lab.V4, lab.V6}
	}
	return p.probe(ctx, families...)
}

// probe programs a sample of each family into an empty namespace, once.
func (p *Proxier) probe(ctx context.Context, families ...lab.Family) error {
	for _, f := range families {
		err := Probe(p.Name()+" IP"+f.String(), func(ns *netns.NS, dir string) error {
			return p.Definition.Probe(ctx, ns, dir, f)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Start implements spec.Proxier.
func (p *Proxier) Start(ctx context.Context, node spec.Node) (spec.Instance, error) {
	if err := p.probe(ctx, node.Families...); err != nil {
		return nil, err
	}
	if node.Config.NodePortsOnPrimary {
		for _, f := range node.Families {
			a := node.Host.Addr(f)
			node.Config.NodePortAddresses = append(node.Config.NodePortAddresses, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	in := &instance{
		proxier: p, node: node, events: &Recorder{node: node.Name, log: node.Log},
		tracking: conntrack.NewCleaner(node.Host.NS), takeOverFrom: p.other,
	}
	if err := in.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", node.Name, err), in.Kill(ctx))
	}
	return in, nil
}

// open sets the sysctls and makes the mechanisms, some of which read them.
func (in *instance) open(ctx context.Context) error {
	settings := conntrack.Settings(in.node.Config.Conntrack)
	if in.proxier.Settings != nil {
		settings = slices.Concat(settings, in.proxier.Settings(in.node))
	}
	if err := in.sysctls.set(in.node.Host.NS, settings...); err != nil {
		return err
	}
	for _, ip := range in.node.Families {
		m, err := in.proxier.New(ctx, Site{Node: in.node, Family: ip, Events: in.events})
		if err != nil {
			return err
		}
		builder := model.NewBuilder(in.node.Name, ip)
		builder.NoExternalIPs = in.node.Config.NoExternalIPs
		m = &guarded{m, ip, &in.writes, in.node.Sabotage}
		in.families = append(in.families, &family{
			node: in.node, ip: ip, relays: in.proxier.Relays, mechanism: m, model: builder,
			addrs:     nodeaddr.NewWatcher(in.node.Host.NS, ip, in.proxier.Device),
			admission: admission{mechanism: m, refuse: in.refused(ip)},
			health:    healthcheck.New(in.node.Host.NS, ip, in.healthy, in.healthPortTaken),
		})
	}
	return nil
}

// removeFrom removes what the proxier left on a node, if it left anything.
func (p *Proxier) removeFrom(ctx context.Context, node spec.Node) error {
	for _, f := range node.Families {
		present, err := p.Present(node.Host.NS, f)
		if err != nil {
			return err
		}
		if present {
			former, err := p.Start(ctx, node)
			if err != nil {
				return err
			}
			return former.Cleanup(ctx)
		}
	}
	return nil
}
