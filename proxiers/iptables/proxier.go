// SPDX-License-Identifier: Apache-2.0

// Package iptables serves Services with iptables, in the layout of kube-proxy: a chain per Service port that picks an
// endpoint at random (KUBE-SVC-*), a chain per endpoint that translates to it (KUBE-SEP-*), and a few shared chains
// that lead packets there.
//
//	nat     PREROUTING, OUTPUT -> KUBE-SERVICES -> KUBE-SVC-*               -> KUBE-SEP-* -> DNAT
//	                                            -> KUBE-EXT-* (or KUBE-FW-*, then KUBE-EXT-*)
//	                                            -> KUBE-NODEPORTS -> KUBE-EXT-*
//	                                               KUBE-EXT-* -> KUBE-SVC-* or KUBE-SVL-*  -> KUBE-SEP-* -> DNAT
//	        POSTROUTING        -> KUBE-POSTROUTING -> MASQUERADE, if KUBE-MARK-MASQ was passed on the way
//	filter  INPUT, FORWARD, OUTPUT -> KUBE-PROXY-FIREWALL, KUBE-SERVICES, KUBE-EXTERNAL-SERVICES: reject or drop
//	        FORWARD            -> KUBE-FORWARD: let Service traffic through
//	        INPUT              -> KUBE-INVALID: drop what would not be translated back
//
// With session affinity, KUBE-SEP-* adds the source of each new connection to an IP set of its own, which forgets it
// after timeoutSeconds. KUBE-SVC-* and KUBE-SVL-* look into these sets before they pick an endpoint at random.
//
// A sync is one run of iptables-restore for each family. The first sync writes everything. Later ones write the chains
// of Services that changed, and the shared chains whose rules changed.
package iptables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/viplab/viplab/internal/proxiers/dnat"
	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/internal/proxiers/nfquery"
	"github.com/viplab/viplab/internal/proxiers/nodeaddr"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/proxiers/model"
	"github.com/viplab/viplab/suite/spec"
)

// Backend is the kernel interface that the iptables programs use.
type Backend = xtables.Backend

// The two back ends of iptables.
const (
	NFT    = xtables.NFTables
	Legacy = xtables.Legacy
)

// New returns the proxier for a back end.
func New(b Backend) *kit.Proxier { return kit.New(definition(b)) }

func definition(b Backend) kit.Definition {
	d := kit.Definition{
		Name: "iptables", Features: features(), Settings: settings,
		Probe: func(ctx context.Context, ns *netns.NS, dir string, f lab.Family) error {
			return probe(ctx, b, f, ns, dir)
		},
		New: func(_ context.Context, site kit.Site) (kit.Mechanism, error) { return newFamily(site, b) },
		Present: func(ns *netns.NS, f lab.Family) (bool, error) {
			return nfquery.HasChain(ns, f, string(xtables.NAT), chainServices)
		},
	}
	if b == Legacy {
		d.Name, d.Features = "iptables-legacy", d.Features.With(spec.IPTablesLegacy)
	}
	return d
}

func features() spec.FeatureSet {
	return spec.ByNetfilter().With(
		spec.IPTables, spec.MasqueradeMark, spec.NodePortAnyLocalAddress, spec.NodePortLocalhost, spec.OpensFirewall,
		spec.DropInvalid, spec.MasqueradeBit,
	)
}

const routeLocalnet = "net.ipv4.conf.all.route_localnet"

// settings returns the sysctls that make 127.0.0.0/8 routable if NodePorts are served on 127.0.0.1, so that a packet to
// it can be translated and leave the node.
func settings(node spec.Node) []netns.Setting {
	if !slices.Contains(node.Families, lab.V4) || !nodeaddr.ServesLocalhost(node.Config) {
		return nil
	}
	return []netns.Setting{{Key: routeLocalnet, Value: "1"}}
}

// lacksRandomFully holds the back ends and families without --random-fully. probe fills it.
var lacksRandomFully sync.Map

type variant struct {
	backend Backend
	family  lab.Family
}

// probe checks that the kernel has IP sets and a back end accepts the rules, and whether it supports --random-fully.
func probe(ctx context.Context, b Backend, f lab.Family, ns *netns.NS, dir string) error {
	programs, err := xtables.Find(ns, b, f, dir)
	if err != nil {
		return err
	}
	defer programs.Close()
	port, _ := kit.Sample(f)
	if err := probeSets(ns, f, port); err != nil {
		return err
	}
	try := func(randomFully bool) error {
		return programs.Restore(ctx, sample(f, port, randomFully).Transactions(b)...)
	}
	if try(true) == nil {
		return nil
	}
	err = try(false)
	if err == nil {
		lacksRandomFully.Store(variant{b, f}, true)
		return nil
	}
	if port.Affinity = 0; ctx.Err() == nil && try(false) == nil {
		return lacksModule("xt_set", err)
	}
	return xtables.Unusable(ctx, err, fmt.Sprintf("Service rules in the %s back end for IP%s", b, f))
}

// probeSets checks that the kernel can create the sets of clients of the port.
func probeSets(ns *netns.NS, f lab.Family, p *model.Port) error {
	sets, err := dnat.OpenClients(ns, f)
	if err != nil {
		return err
	}
	if err := sets.Prepare(&model.Service{Ports: []*model.Port{p}}); err != nil {
		return errors.Join(lacksModule("ip_set_hash_ip", err), sets.Close())
	}
	return sets.Close()
}

func lacksModule(module string, err error) error {
	return &spec.UnusableError{
		Missing: "the kernel module " + module,
		Cure:    fmt.Sprintf("modprobe %s, or use a kernel that has it, as scripts/vm does (%v)", module, err),
	}
}

// sample returns the first sync of a node whose only Service with endpoints uses every match and target.
func sample(f lab.Family, port *model.Port, randomFully bool) *xtables.Change {
	_, pods := kit.Sample(f)
	twice := *port
	twice.Cluster = slices.Concat(port.Cluster, port.Cluster) // two endpoints, so that a rule picks one at random
	ports := []*model.Port{&twice, kit.UnservedSample(f)}
	rules := &nodeRules{
		family: f, mark: spec.ProxyConfig{}.MasqueradeMark(), localhost: f == lab.V4, randomFully: randomFully,
	}
	of := &renderer{chains: dnat.Chains{NodePods: pods}, podRange: pods, nodeAddr: port.ClusterIP}
	state := &model.State{Services: []*model.Service{{Ports: ports}}}
	return (&ledger{}).rebuild(state, rules.nodePortEntry(nil), of, rules, nil)
}
