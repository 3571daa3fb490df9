// SPDX-License-Identifier: Apache-2.0

// Package iptables serves Services with iptables, in the shape kube-proxy has made known: a chain per Service port that
// picks an endpoint at random (KUBE-SVC-*), a chain per endpoint that translates to it (KUBE-SEP-*), and a few chains
// through which packets get there.
//
//	nat     PREROUTING, OUTPUT -> KUBE-SERVICES -> KUBE-SVC-*               -> KUBE-SEP-* -> DNAT
//	                                            -> KUBE-EXT-* (or KUBE-FW-*, then KUBE-EXT-*)
//	                                            -> KUBE-NODEPORTS -> KUBE-EXT-*
//	                                               KUBE-EXT-* -> KUBE-SVC-* or KUBE-SVL-*  -> KUBE-SEP-* -> DNAT
//	        POSTROUTING        -> KUBE-POSTROUTING -> MASQUERADE, if KUBE-MARK-MASQ was passed on the way
//	filter  INPUT, FORWARD, OUTPUT -> KUBE-PROXY-FIREWALL, KUBE-SERVICES, KUBE-EXTERNAL-SERVICES: reject or drop
//	        FORWARD            -> KUBE-FORWARD: let Service traffic through
//
// A sync is one run of iptables-restore for each family. The first one writes everything, whatever the kernel held
// before; later ones write the chains of Services that changed, and a shared chain if its rules changed.
package iptables

import (
	"context"

	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/suite/spec"
)

// Backend is the kernel interface behind the programs.
type Backend = xtables.Backend

// The two back ends of iptables.
const (
	NFT    = xtables.NFTables
	Legacy = xtables.Legacy
)

// New makes the proxier for a back end.
func New(b Backend) spec.Proxier { return proxier{backend: b} }

type proxier struct{ backend Backend }

func (p proxier) Name() string {
	if p.backend == Legacy {
		return "iptables-legacy"
	}
	return "iptables"
}

func (p proxier) Features() spec.FeatureSet {
	set := spec.Features(
		spec.SurvivesRestart, spec.Cleanup, spec.SCTP, spec.PodsByAddress, spec.ClusterIP, spec.NodePort, spec.ExternalIPs,
		spec.LoadBalancer, spec.ETPLocal, spec.ITPLocal,
		spec.SessionAffinity, spec.Hairpin, spec.HealthCheckNodePort, spec.TerminatingFallback, spec.Topology,
		spec.SourceAddress, spec.RandomSpread, spec.NodePortAnyLocalAddress, spec.NodePortLocalhost, spec.ForwardAccept,
		spec.DropInvalid, spec.ConntrackCleanupUDP, spec.KernelNAT, spec.VirtualIP, spec.NodePortPrecedence,
		spec.MasqueradeMark, spec.IPTables, spec.NodeHints, spec.OutlivesService, spec.ConntrackSparesOthers,
		spec.ConntrackFollowsFrontends, spec.UDPDrains, spec.UDPKeepsLast, spec.ClusterIPFromOutside,
		spec.NoEndpointsRefused, spec.SourceRanges, spec.HealthCheckBody, spec.HealthCheckAccept,
		spec.ExternalIPsGate, spec.AffinityTimeout, spec.ResolvesClashes, spec.ETPLocalShortcut, spec.LargeFromNode,
		spec.BridgedFragmentsV6,
	)
	if p.backend == Legacy {
		set[spec.IPTablesLegacy] = true
	}
	return set
}

// Usable looks for the programs, and tries in an empty namespace whether the kernel has what their rules need.
func (p proxier) Usable(ctx context.Context) error {
	for _, f := range []lab.Family{lab.V4, lab.V6} {
		if _, err := probe(ctx, p.backend, f); err != nil {
			return err
		}
	}
	return nil
}

func (p proxier) Start(ctx context.Context, node spec.Node) (spec.Instance, error) {
	in, err := newInstance(ctx, p.backend, node)
	if err != nil {
		return nil, err
	}
	return in, nil
}
