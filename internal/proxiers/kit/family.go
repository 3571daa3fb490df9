// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/viplab/viplab/internal/proxiers/conntrack"
	"github.com/viplab/viplab/internal/proxiers/healthcheck"
	"github.com/viplab/viplab/internal/proxiers/nodeaddr"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/proxiers/model"
	"github.com/viplab/viplab/suite/spec"
)

// family keeps one IP family of a node up to date.
type family struct {
	node      spec.Node
	ip        lab.Family
	relays    bool
	mechanism Mechanism
	admission admission
	model     *model.Builder
	health    *healthcheck.Server
	late      lateness
	addrs     *nodeaddr.Watcher
	// programmed is the state that the node serves, and local are the addresses that it had when it was programmed.
	programmed *model.State
	local      []netip.Addr
	// tracked is the state for which connection tracking was last cleaned up.
	tracked *model.State
}

func (f *family) apply(ctx context.Context, s *store.Snapshot) error {
	state := f.model.Build(s)
	local, err := f.addrs.Local()
	if err != nil {
		return err
	}
	at := Place{Local: local, NodePorts: nodeaddr.NodePorts(f.node.Config, f.ip, local)}
	if err := f.admission.program(ctx, state, at); err != nil {
		return err
	}
	if err := f.health.Sync(ctx, f.checks(state), at.NodePorts); err != nil {
		f.node.Log.Warn(err.Error(), "node", f.node.Name) // a port that could not be closed cleanly
	}
	f.programmed, f.local = state, local
	return nil
}

// wantedFlows returns which UDP flows may stay after the newest change, nil if that change made none stale.
func (f *family) wantedFlows() *conntrack.Wanted {
	if f.relays || f.programmed == f.tracked {
		return nil
	}
	wanted := f.changedFlows()
	if keep := f.node.Sabotage.KeepStaleFlows; wanted != nil && keep != nil && keep() {
		return nil
	}
	return wanted
}

// changedFlows describes all flows at the first time, since another proxier may have served the node before, and later
// those that the newest change concerns.
func (f *family) changedFlows() *conntrack.Wanted {
	if f.tracked == nil {
		all := conntrack.WantedOf(f.programmed, f.local)
		all.Inherited = f.ip
		return all
	}
	gone, come := model.Diff(f.tracked, f.programmed)
	if !conntrack.Concerns(slices.Concat(gone, come)...) {
		return nil // without looking at all Services
	}
	return conntrack.WantedOf(f.programmed, f.local).After(gone, come)
}

func (f *family) remove(ctx context.Context) error {
	f.programmed, f.tracked = nil, nil
	return errors.Join(f.health.Close(), f.mechanism.Remove(ctx))
}

// checks returns the health check ports of a state.
func (f *family) checks(state *model.State) []healthcheck.Check {
	var out []healthcheck.Check
	for _, s := range state.Services {
		if s.Health == nil {
			continue
		}
		n := s.Health.LocalEndpoints
		if count := f.node.Sabotage.CountEndpoints; count != nil {
			n = count(n)
		}
		out = append(out, healthcheck.Check{Namespace: s.Namespace, Name: s.Name, Port: s.Health.Port, LocalEndpoints: n})
	}
	return out
}
