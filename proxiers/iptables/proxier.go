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
//
// A sync is one run of iptables-restore for each family. The first sync writes everything, whatever the kernel held
// before. Later ones write the chains of Services that changed, and the shared chains whose rules changed.
package iptables

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/internal/proxiers/nft"
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
			return nft.HasChain(ns, f, string(xtables.NAT), chainServices)
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
		spec.DropInvalid,
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

// probe checks that a back end accepts the rules, and whether it supports --random-fully.
func probe(ctx context.Context, b Backend, f lab.Family, ns *netns.NS, dir string) error {
	programs, err := xtables.Find(ns, b, f, dir)
	if err != nil {
		return err
	}
	if programs.Restore(ctx, sample(f, true).Transactions(b)...) == nil {
		return nil
	}
	err = programs.Restore(ctx, sample(f, false).Transactions(b)...)
	if err == nil {
		lacksRandomFully.Store(variant{b, f}, true)
	}
	return xtables.Unusable(ctx, err, fmt.Sprintf("Service rules in the %s back end for IP%s", b, f))
}

// sample returns the first sync of a node whose only Service uses every match and target.
func sample(f lab.Family, randomFully bool) *xtables.Change {
	port, pods := kit.Sample(f)
	port.Cluster = append(port.Cluster, port.Cluster...) // two endpoints, so that a rule picks one at random
	ports := []*model.Port{port, kit.UnservedSample(f)}
	rules := &nodeRules{family: f, localhost: f == lab.V4, randomFully: randomFully}
	of := &renderer{podRange: pods, nodePods: pods, nodeAddr: port.ClusterIP}
	state := &model.State{Services: []*model.Service{{Ports: ports}}}
	return (&ledger{}).rebuild(state, rules.nodePortEntry(nil), of, rules, nil)
}
