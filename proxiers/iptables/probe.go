// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/viplab/viplab/internal/proxiers/usable"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/proxiers/model"
	"github.com/viplab/viplab/suite/spec"
)

// capabilities are what a kernel, with the programs on it, can do beyond the necessary.
type capabilities struct {
	randomFully bool
}

// probes remembers the answer for each back end and family.
var probes usable.Memory[probeKey, capabilities]

type probeKey struct {
	backend Backend
	family  lab.Family
}

// probe finds out whether a back end can take our rules, by giving it some in an empty namespace.
func probe(ctx context.Context, b Backend, f lab.Family) (capabilities, error) {
	return probes.Try(probeKey{b, f}, func() (c capabilities, err error) {
		err = usable.InEmptyNamespace(func(ns *netns.NS, dir string) error {
			c, err = try(ctx, b, f, ns, dir)
			return err
		})
		return c, usable.Explain(err)
	})
}

func try(ctx context.Context, b Backend, f lab.Family, ns *netns.NS, dir string) (c capabilities, err error) {
	programs, err := xtables.Find(ns, b, f, filepath.Join(dir, "xtables.lock"))
	if err != nil {
		return c, err
	}
	c.randomFully = true
	if err = programs.Restore(ctx, sample(f, c).transactions(b)...); err == nil {
		return c, nil
	}
	c.randomFully = false
	if err = programs.Restore(ctx, sample(f, c).transactions(b)...); err == nil || ctx.Err() != nil {
		return c, err
	}
	return c, &spec.UnusableError{
		Missing: fmt.Sprintf("the iptables matches and targets of Service rules in the %s back end for IP%s", b, f),
		Cure:    fmt.Sprintf("load the kernel modules that the program asks for (%v)", err),
	}
}

// sample is the first sync of a node whose only Service uses every match and target there is.
func sample(f lab.Family, c capabilities) *change {
	port, pods := usable.Sample(f)
	port.Cluster = append(port.Cluster, port.Cluster...) // so that one is chosen by chance
	vip := port.ClusterIP
	nobody := &model.Port{ID: model.PortID{Namespace: "probe", Name: "nobody", Protocol: "UDP"}, Number: 53,
		ClusterIP: vip}
	state := &model.State{Services: []*model.Service{{Ports: []*model.Port{port, nobody}}}}
	rules := &nodeRules{family: f, localhost: f == lab.V4, randomFully: c.randomFully}
	d, _, _ := (&desired{}).next(state, rules.nodePortEntry(nil), &renderer{podRange: pods, nodeAddr: vip})
	return rebuild(d, rules, &xtables.Saved{}, &xtables.Saved{})
}
