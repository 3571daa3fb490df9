// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/netip"

	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/suite/spec"
)

// Mechanism makes a node obey policies. Its methods are not called concurrently.
type Mechanism interface {
	// Program makes the kernel obey the state. After an error nothing is known of the kernel, and the next call puts it
	// right. What is programmed already costs no program.
	Program(ctx context.Context, want *State, ports Ports) error
	// Dump returns what is programmed, for people.
	Dump(ctx context.Context) ([]byte, error)
	// Remove takes away everything of the mechanism, and of a former life of it.
	Remove(ctx context.Context) error
}

// Holder is a Mechanism that watches the kernel meanwhile.
type Holder interface {
	// Release ends that; what is programmed stays.
	Release()
}

// Ports are the devices that lead to the node's pods, by address.
type Ports map[netip.Addr]string

// Enforcer is a spec.Instance.
type Enforcer struct {
	node      spec.Node
	compiler  Compiler
	mechanism Mechanism
}

// New makes an enforcer of a node.
func New(node spec.Node, m Mechanism) *Enforcer {
	return &Enforcer{node: node, compiler: Compiler{Node: node.Name}, mechanism: m}
}

// Apply implements spec.Instance. What fails is tried once more, as then everything is written, whatever the kernel
// held.
func (e *Enforcer) Apply(ctx context.Context, s *store.Snapshot) error {
	state, ports := e.compiler.Compile(s), e.node.Host.Ports()
	err := e.mechanism.Program(ctx, state, ports)
	if err != nil && ctx.Err() == nil {
		err = e.mechanism.Program(ctx, state, ports)
	}
	if err != nil {
		return fmt.Errorf("%s: enforce policies: %w", e.node.Name, err)
	}
	return nil
}

// Dump implements spec.Instance.
func (e *Enforcer) Dump(ctx context.Context, w io.Writer) error {
	text, err := e.mechanism.Dump(ctx)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, bytes.NewReader(text))
	return err
}

// Stop implements spec.Instance.
func (e *Enforcer) Stop(ctx context.Context) error { return e.mechanism.Remove(ctx) }

// Kill implements spec.Instance.
func (e *Enforcer) Kill(context.Context) error {
	if h, ok := e.mechanism.(Holder); ok {
		h.Release()
	}
	return nil
}
