package iptables

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"slices"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/kube"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/proxiers/internal/conntrack"
	"github.com/viplab/viplab/proxiers/internal/healthcheck"
	"github.com/viplab/viplab/proxiers/internal/nodeaddr"
	"github.com/viplab/viplab/proxiers/internal/xtables"
	"github.com/viplab/viplab/proxiers/model"
	"github.com/viplab/viplab/suite/spec"
)

// family keeps one IP family of a node in step with the cluster.
type family struct {
	node     spec.Node
	ip       lab.Family
	backend  Backend
	programs *xtables.Programs
	model    *model.Builder
	rules    nodeRules
	renderer renderer
	health   *healthcheck.Server

	// done is what the kernel holds; nil means that this is not known, and that everything is to be written.
	done *desired
	// tracked is the state for which connection tracking was last cleaned up.
	tracked *model.State
}

func newFamily(node spec.Node, ip lab.Family, b Backend, can capabilities) (*family, error) {
	programs, err := xtables.Find(node.Host.NS, b, ip, filepath.Join(node.StateDir, "xtables-"+ip.String()+".lock"))
	if err != nil {
		return nil, err
	}
	liberal, err := tracksLiberally(node.Host.NS)
	if err != nil {
		return nil, err
	}
	return &family{
		node:     node,
		ip:       ip,
		backend:  b,
		programs: programs,
		model:    model.NewBuilder(node.Name, ip),
		rules: nodeRules{
			family:      ip,
			localhost:   ip == lab.V4 && nodeaddr.ServesLocalhost(node.Config),
			randomFully: can.randomFully,
			liberal:     liberal,
		},
		renderer: renderer{
			podRange:      nodeaddr.OfFamily(node.ClusterCIDRs, ip),
			nodeAddr:      node.Host.Addr(ip),
			masqueradeAll: node.Config.MasqueradeAll,
		},
		health: healthcheck.New(node.Host.NS, ip),
	}, nil
}

// tracksLiberally says whether connection tracking is told to take out-of-window TCP segments for valid.
func tracksLiberally(ns *netns.NS) (bool, error) {
	v, err := ns.Sysctl("net.netfilter.nf_conntrack_tcp_be_liberal")
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // connection tracking is not loaded yet, and starts with 0
	}
	return v == "1", err
}

// apply makes the family obey a snapshot.
func (f *family) apply(ctx context.Context, s *kube.Snapshot) error {
	state := f.model.Build(s)
	local, err := nodeaddr.Local(f.node.Host.NS, f.ip)
	if err != nil {
		return err
	}
	nodePorts := nodeaddr.NodePorts(f.node.Config, f.ip, local)
	if err := f.program(ctx, state, f.rules.nodePortEntry(nodePorts)); err != nil {
		return err
	}
	if err := f.health.Sync(ctx, checks(state), nodePorts); err != nil {
		// Another program has the port. The Service itself works, and the next sync tries again.
		f.node.Log.Warn(err.Error(), "node", f.node.Name)
	}
	return f.forget(ctx, state, local)
}

// program brings the kernel's rules in line.
func (f *family) program(ctx context.Context, state *model.State, tail []xtables.Rule) error {
	if f.done == nil {
		return f.programAll(ctx, state, tail)
	}
	if state == f.done.state && slices.Equal(tail, f.done.tail) {
		return nil
	}
	next, gone, come := f.done.next(state, tail, &f.renderer)
	return f.commit(ctx, next, delta(gone, come, f.done.tail, tail))
}

// programAll writes everything, whatever there is.
func (f *family) programAll(ctx context.Context, state *model.State, tail []xtables.Rule) error {
	filter, err := f.programs.Save(ctx, xtables.Filter)
	if err != nil {
		return err
	}
	nat, err := f.programs.Save(ctx, xtables.NAT)
	if err != nil {
		return err
	}
	next, _, _ := (&desired{}).next(state, tail, &f.renderer)
	return f.commit(ctx, next, rebuild(next, &f.rules, filter, nat))
}

// commit carries out the change to next. Until that has succeeded, what the kernel holds is not known.
func (f *family) commit(ctx context.Context, next *desired, c *change) error {
	f.done = nil
	if err := f.programs.Restore(ctx, c.transactions(f.backend)...); err != nil {
		return err
	}
	f.done = next
	return nil
}

// forget takes flows out of connection tracking that lead to endpoints which are gone.
func (f *family) forget(ctx context.Context, state *model.State, local []netip.Addr) error {
	if state == f.tracked {
		return nil
	}
	gone, come := model.Diff(f.tracked, state)
	if conntrack.Concerns(gone) || conntrack.Concerns(come) {
		if err := conntrack.Clean(ctx, f.node.Host.NS, f.ip, conntrack.WantedOf(state, local)); err != nil {
			return err
		}
	}
	f.tracked = state
	return nil
}

// remove takes everything of ours away.
func (f *family) remove(ctx context.Context) error {
	f.done, f.tracked = nil, nil
	errs := []error{f.health.Close()}
	for _, t := range []xtables.TableName{xtables.NAT, xtables.Filter} {
		saved, err := f.programs.Save(ctx, t)
		if err == nil {
			err = f.programs.Restore(ctx, removal(f.backend, t, saved)...)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// dump returns the tables as text.
func (f *family) dump(ctx context.Context) ([]byte, error) {
	var all []byte
	for _, t := range []xtables.TableName{xtables.Filter, xtables.NAT} {
		text, err := f.programs.SaveText(ctx, t)
		if err != nil {
			return nil, err
		}
		all = append(all, text...)
	}
	return fmt.Appendf(nil, "# IP%s\n%s", f.ip, all), nil
}

// checks are the health check ports of a state.
func checks(state *model.State) []healthcheck.Check {
	var out []healthcheck.Check
	for _, s := range state.Services {
		if s.Health != nil {
			out = append(out, healthcheck.Check{
				Namespace: s.Namespace, Name: s.Name, Port: s.Health.Port, LocalEndpoints: s.Health.LocalEndpoints,
			})
		}
	}
	return out
}
