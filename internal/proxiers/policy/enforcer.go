// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"fmt"
	"io"
	"net/netip"

	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/suite/spec"
)

// Definition describes an enforcer.
type Definition struct {
	Name     string
	Features spec.FeatureSet
	// Probe programs a sample into an empty namespace. dir is a directory for its files.
	Probe func(ctx context.Context, ns *netns.NS, dir string) error
	// New makes the mechanisms of a node, which work independently.
	New func(node spec.Node) ([]Mechanism, error)
}

// Mechanism programs the policies of a node, or one IP family of them. Its methods are not called concurrently.
type Mechanism interface {
	// Program makes the kernel hold the state. After an error the mechanism assumes nothing about the kernel, and the
	// next call rewrites everything. A call with the same state runs no program.
	Program(ctx context.Context, want *State, ports Ports) error
	// Dump returns what is programmed, for people.
	Dump(ctx context.Context) ([]byte, error)
	// Remove removes everything that this instance of the mechanism and earlier ones programmed.
	Remove(ctx context.Context) error
	// Release ends what runs in the background; what is programmed stays.
	Release()
}

// Ports are the devices that lead to the node's pods, by address.
type Ports map[netip.Addr]string

// New returns the enforcer that d describes.
func New(d Definition) spec.Proxier { return proxier{d} }

type proxier struct{ definition Definition }

func (p proxier) Name() string              { return p.definition.Name }
func (p proxier) Features() spec.FeatureSet { return p.definition.Features }
func (p proxier) Other() spec.Proxier       { return nil }

// Usable programs a sample of both families into an empty namespace, once.
func (p proxier) Usable(ctx context.Context, _ ...lab.Family) error {
	return kit.Probe(p.Name(), func(ns *netns.NS, dir string) error { return p.definition.Probe(ctx, ns, dir) })
}

func (p proxier) Start(_ context.Context, node spec.Node) (spec.Instance, error) {
	all, err := p.definition.New(node)
	if err != nil {
		return nil, err
	}
	return &instance{node: node, compiler: Compiler{Node: node.Name}, mechanisms: all}, nil
}

// instance is an enforcer on one node.
type instance struct {
	spec.Undisturbed

	node       spec.Node
	compiler   Compiler
	mechanisms []Mechanism
}

// Apply implements spec.Instance. After a failure it tries once more, because the mechanism then rewrites everything.
func (i *instance) Apply(ctx context.Context, s *store.Snapshot) error {
	state, ports := i.compiler.Compile(s), i.node.Host.Ports()
	err := kit.Each(i.mechanisms, func(m Mechanism) error {
		err := m.Program(ctx, state, ports)
		if err != nil && ctx.Err() == nil {
			err = m.Program(ctx, state, ports)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: enforce policies: %w", i.node.Name, err)
	}
	return nil
}

func (i *instance) Dump(ctx context.Context, w io.Writer) error {
	for _, m := range i.mechanisms {
		text, err := m.Dump(ctx)
		if err != nil {
			return err
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return nil
}

// Remarks implements kit.Remarker.
func (i *instance) Remarks() map[string]string { return kit.RemarksOf(i.mechanisms) }

// Stop implements spec.Instance. The built-in enforcers remove their rules when they stop.
func (i *instance) Stop(ctx context.Context) error { return i.Cleanup(ctx) }

func (i *instance) Cleanup(ctx context.Context) error {
	return kit.Each(i.mechanisms, func(m Mechanism) error { return m.Remove(ctx) })
}

func (i *instance) Kill(context.Context) error {
	for _, m := range i.mechanisms {
		m.Release()
	}
	return nil
}
