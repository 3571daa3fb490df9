// SPDX-License-Identifier: Apache-2.0

// Package keeper keeps one node in step with the cluster. It is what the built-in proxiers have in common: the model of
// the cluster, one for each family, the health check ports, connection tracking entries that lead to endpoints which
// are gone, and the settings of the kernel. What they do not have in common is a Mechanism.
package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/viplab/viplab/internal/proxiers/conntrack"
	"github.com/viplab/viplab/internal/proxiers/events"
	"github.com/viplab/viplab/internal/proxiers/healthcheck"
	"github.com/viplab/viplab/internal/proxiers/nodeaddr"
	"github.com/viplab/viplab/internal/proxiers/tune"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/proxiers/model"
	"github.com/viplab/viplab/suite/spec"
)

// Mechanism makes one IP family of a node serve Services. Its methods are not called concurrently.
type Mechanism interface {
	// Program makes the kernel obey the state. After an error nothing is known of the kernel, and the next call puts it
	// right. It costs next to nothing if neither the state, which is compared by identity, nor the place has changed.
	Program(ctx context.Context, state *model.State, at Place) error
	// Dump returns what is programmed, for people.
	Dump(ctx context.Context) ([]byte, error)
	// Remove takes away everything of the mechanism, and of a former life of it.
	Remove(ctx context.Context) error
}

// Holder is a Mechanism with sockets of its own.
type Holder interface {
	// Release closes them; what is programmed stays.
	Release()
}

// Place is what a node has of its own.
type Place struct {
	// Local are the addresses of the node.
	Local []netip.Addr
	// NodePorts are those of them that serve NodePorts. Nil means every one, later ones included.
	NodePorts []netip.Addr
}

// Flows say what becomes of connection tracking entries.
type Flows bool

const (
	// Tracked entries lead to endpoints; those to vanished UDP endpoints are deleted.
	Tracked Flows = true
	// Relayed traffic has no entries that lead to endpoints.
	Relayed Flows = false
)

// Hooks are where something can be put between a keeper and the kernel, to see who notices. A nil one changes nothing.
type Hooks struct {
	// Stale has the last word on the UDP flows that are taken out of connection tracking: it gets what is wanted and makes
	// something else of it.
	Stale func(*conntrack.Wanted) *conntrack.Wanted
	// Health changes what a health check port has to tell.
	Health func(healthcheck.Check) healthcheck.Check
}

// Keeper is a spec.Instance.
type Keeper struct {
	// Events take what people are to know of single Services. Dump begins with them.
	Events   *events.Recorder
	node     spec.Node
	families []*family
	tracking *conntrack.Cleaner
	sysctls  tune.Sysctls
}

// New makes a keeper of a node, of a mechanism for each of its families, in their order, and of the kernel's settings
// that they need. Stop puts the settings back.
func New(node spec.Node, flows Flows, settings []netns.Setting, mechanisms []Mechanism) (*Keeper, error) {
	k := &Keeper{node: node, Events: events.New(node.Name, node.Log), tracking: conntrack.NewCleaner(node.Host.NS)}
	for i, ip := range node.Families {
		builder := model.NewBuilder(node.Name, ip)
		builder.NoExternalIPs = node.Config.NoExternalIPs
		k.families = append(k.families, &family{
			node: node, ip: ip, flows: flows, mechanism: mechanisms[i],
			guard: guard{mechanism: mechanisms[i], refuse: k.refused(ip)},
			model: builder, health: healthcheck.New(node.Host.NS, ip, k.unhealthy),
			addrs: nodeaddr.NewWatcher(node.Host.NS, ip),
		})
	}
	if err := k.sysctls.Set(node.Host.NS, settings...); err != nil {
		return nil, err
	}
	return k, nil
}

// Hook puts hooks in. It is called before the first Apply.
func (k *Keeper) Hook(h Hooks) {
	for _, f := range k.families {
		f.hooks = h
	}
}

// Disregard makes the addresses of a device not count as the node's own: a mechanism has put them there. It is called
// before the first Apply.
func (k *Keeper) Disregard(device string) {
	for _, f := range k.families {
		f.addrs.Without = device
	}
}

// Apply implements spec.Instance. The families go their own ways: one that fails does not hold up the other.
func (k *Keeper) Apply(ctx context.Context, want *store.Snapshot) error {
	err := k.each(func(f *family) error { return f.apply(ctx, want) })
	return errors.Join(err, k.forget(ctx))
}

// forget takes flows out of connection tracking that lead to endpoints which are gone.
func (k *Keeper) forget(ctx context.Context) error {
	var answers []*conntrack.Wanted
	for _, f := range k.families {
		answers = append(answers, f.stale())
	}
	if err := k.tracking.Clean(ctx, answers...); err != nil {
		return err
	}
	for _, f := range k.families {
		f.tracked = f.programmed
	}
	return nil
}

// Dump implements spec.Instance.
func (k *Keeper) Dump(ctx context.Context, w io.Writer) error {
	for _, e := range k.Events.Lines() {
		if _, err := fmt.Fprintf(w, "# Event %s\n", strings.ReplaceAll(e, "\n", "\n#   ")); err != nil {
			return err
		}
	}
	for _, f := range k.families {
		text, err := f.mechanism.Dump(ctx)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "# IP%s\n%s", f.ip, text); err != nil {
			return err
		}
	}
	return nil
}

// Stop implements spec.Instance.
func (k *Keeper) Stop(ctx context.Context) error {
	err := k.each(func(f *family) error { return f.remove(ctx) })
	return errors.Join(err, k.tracking.Close(), k.sysctls.Restore(k.node.Host.NS))
}

// unhealthy tells of a health check port that another program has. The Service itself works, and the next sync tries
// again. The reason is that of kube-proxy.
func (k *Keeper) unhealthy(c healthcheck.Check, err error) {
	k.Events.Warn(c.Namespace, c.Name, "FailedToStartServiceHealthcheck", fmt.Sprintf("the health check port %d is not "+
		"served on node %s: %v. Stop the program that has it, or give the Service another one", c.Port, k.node.Name, err))
}

// refused tells of a Service that a family's mechanism does not take.
func (k *Keeper) refused(ip lab.Family) func(*model.Service, error) {
	return func(s *model.Service, err error) {
		k.Events.Warn(s.Namespace, s.Name, "FailedToProgram",
			fmt.Sprintf("not served on node %s by IP%s, until it changes: %v", k.node.Name, ip, err))
	}
}

// Kill implements spec.Instance.
func (k *Keeper) Kill(context.Context) error {
	errs := []error{k.tracking.Close()}
	for _, f := range k.families {
		errs = append(errs, f.health.Close(), f.addrs.Close())
		if m, ok := f.mechanism.(Holder); ok {
			m.Release()
		}
	}
	return errors.Join(errs...)
}

// each does something for all families at once.
func (k *Keeper) each(do func(*family) error) error {
	errs := make([]error, len(k.families))
	var all sync.WaitGroup
	for i, f := range k.families {
		all.Go(func() {
			if err := do(f); err != nil {
				errs[i] = fmt.Errorf("%s: IP%s: %w", k.node.Name, f.ip, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// family keeps one IP family in step.
type family struct {
	node      spec.Node
	ip        lab.Family
	flows     Flows
	mechanism Mechanism
	guard     guard
	model     *model.Builder
	health    *healthcheck.Server
	addrs     *nodeaddr.Watcher
	// programmed is the state that the node obeys, and local the addresses it had then.
	programmed *model.State
	local      []netip.Addr
	// tracked is the state for which connection tracking was last cleaned up.
	tracked *model.State
	hooks   Hooks
}

func (f *family) apply(ctx context.Context, s *store.Snapshot) error {
	state := f.model.Build(s)
	local, err := f.addrs.Local()
	if err != nil {
		return err
	}
	at := Place{Local: local, NodePorts: nodeaddr.NodePorts(f.node.Config, f.ip, local)}
	if err := f.guard.program(ctx, state, at); err != nil {
		return err
	}
	if err := f.health.Sync(ctx, f.checks(state), at.NodePorts); err != nil {
		f.node.Log.Warn(err.Error(), "node", f.node.Name) // a port that did not close in peace
	}
	f.programmed, f.local = state, local
	return nil
}

// stale is what is wanted of the flows that the newest state may have made stale, nil if it concerns none.
func (f *family) stale() *conntrack.Wanted {
	if f.flows == Relayed || f.programmed == f.tracked {
		return nil
	}
	gone, come := model.Diff(f.tracked, f.programmed)
	if !conntrack.Concerns(gone) && !conntrack.Concerns(come) {
		return nil // and not a look at all Services
	}
	wanted := conntrack.WantedOf(f.programmed, f.local).Of(slices.Concat(gone, come))
	if wanted != nil && f.hooks.Stale != nil {
		wanted = f.hooks.Stale(wanted)
	}
	return wanted
}

func (f *family) remove(ctx context.Context) error {
	f.programmed, f.tracked = nil, nil
	return errors.Join(f.health.Close(), f.addrs.Close(), f.mechanism.Remove(ctx))
}

// checks are the health check ports of a state.
func (f *family) checks(state *model.State) []healthcheck.Check {
	var out []healthcheck.Check
	for _, s := range state.Services {
		if s.Health == nil {
			continue
		}
		c := healthcheck.Check{Namespace: s.Namespace, Name: s.Name, Port: s.Health.Port,
			LocalEndpoints: s.Health.LocalEndpoints}
		if f.hooks.Health != nil {
			c = f.hooks.Health(c)
		}
		out = append(out, c)
	}
	return out
}
