// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"context"
	"io"
	"log/slog"
	"net/netip"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
)

// Proxier is an implementation of Service virtual IPs that can be placed into a node. There is one value per
// implementation; it holds no state of a node.
type Proxier interface {
	// Name returns the name in commands and reports: lower-case letters, digits and dashes.
	Name() string
	// Features returns the features that the proxier claims. Features are declared, never discovered: a claim that does
	// not hold is a failure.
	Features() FeatureSet
	// Usable returns nil if the proxier can run on this machine, an *UnusableError if something is missing, or another
	// error if it cannot find out.
	Usable(ctx context.Context) error
	// Other returns the same program in another mode, or nil if it has no other mode. When either mode starts, it removes
	// what the other left on the node. A proxier with another mode declares ModeSwitch.
	Other() Proxier
	// Start starts the proxier on a node. It need not program anything before the first Apply. It returns an
	// *UnusableError if the proxier does not support node.Config: scenarios that need that configuration are skipped.
	Start(ctx context.Context, node Node) (Instance, error)
}

// Instance is a proxier that runs on one node. Its methods are not called concurrently. It ends with one call of Stop,
// Kill or Cleanup; no method is called after that.
type Instance interface {
	// Apply makes the node serve the whole state, and returns when packets show that it does. An error is a failure of the
	// proxier; the caller retries with the newest state. To apply an unchanged state must not affect packets.
	Apply(ctx context.Context, want *store.Snapshot) error
	// Dump writes what is programmed, for people.
	Dump(ctx context.Context, w io.Writer) error
	// Stop ends the proxier as SIGTERM ends a program. Whether the programmed rules stay depends on the implementation's
	// own shutdown: the built-in proxiers remove them, kube-proxy leaves them.
	Stop(ctx context.Context) error
	// Kill ends the proxier as SIGKILL ends a program: its sockets and children are gone, and the programmed rules stay.
	Kill(ctx context.Context) error
	// Cleanup ends the proxier and removes everything that it and earlier instances programmed on the node. It leaves the
	// rest of the node unchanged. It returns an error if the implementation cannot do that; all others declare the feature
	// Cleanup.
	Cleanup(ctx context.Context) error
}

// Node describes the node that a proxier runs on.
type Node struct {
	// Name is the node's name in the Kubernetes API. Endpoints with this nodeName are local.
	Name string
	// Host is the node's network namespace. The proxier's sockets and children live there.
	Host *lab.Node
	// Families are the IP families to serve, the primary one first.
	Families []lab.Family
	// PodCIDRs are the node's own pod ranges, ClusterCIDRs those of all nodes, one per family.
	PodCIDRs, ClusterCIDRs []netip.Prefix
	// ServiceCIDRs are the ranges of ClusterIPs, one per family.
	ServiceCIDRs []netip.Prefix
	// Store is the cluster's state, for proxiers that read it from an API server instead of from Apply.
	Store *store.Store
	// StateDir is a private folder for files (locks, sockets, logs). It is empty at the start.
	StateDir string
	// Config holds the settings that an administrator would make.
	Config ProxyConfig
	// Endpoints, if not nil, is closed once the proxier may learn of EndpointSlices. Until then Apply is not called, and
	// an API server for the Store does not answer requests for EndpointSlices. Start returns when the proxier has listed
	// Services.
	Endpoints <-chan struct{}
	// Log is for people. It is stored in the report folder of a failed scenario.
	Log *slog.Logger
	// Sabotage breaks the proxier on purpose. The zero value breaks nothing.
	Sabotage Sabotage
}

// Sabotage breaks parts of the built-in proxiers that call the kernel directly. Faults in other parts are injected into
// the input of a program. Other proxiers ignore it. The zero value breaks nothing.
type Sabotage struct {
	// CountEndpoints changes the number of endpoints that a health check port reports.
	CountEndpoints func(n int) int
	// KeepStaleFlows reports whether UDP flows to removed endpoints stay in connection tracking.
	KeepStaleFlows func() bool
}

// NodeOf describes a node of a lab to a program. The caller sets StateDir and Log.
func NodeOf(l *lab.Lab, n *lab.Node, state *store.Store) Node {
	return Node{
		Name: n.Name(), Host: n, Families: l.Stack().Families(), PodCIDRs: n.PodCIDRs(), ClusterCIDRs: l.ClusterCIDRs(),
		ServiceCIDRs: state.ServiceCIDRs(), Store: state,
	}
}

// ProxyConfig holds the settings that change what a proxier promises. The zero value is the default of Kubernetes.
type ProxyConfig struct {
	// MasqueradeAll rewrites the source of all Service traffic, not only where the return path requires it.
	MasqueradeAll bool
	// NodePortAddresses limits NodePorts to local addresses inside these ranges. Empty means all local addresses.
	NodePortAddresses []netip.Prefix
	// NoExternalIPs makes the proxier ignore spec.externalIPs.
	NoExternalIPs bool
	// NoLocalhostNodePorts disables 127.0.0.1:nodePort where the proxier would serve it.
	NoLocalhostNodePorts bool
	// IPVSScheduler is the IPVS scheduler: rr, wrr, lc, wlc, sh, dh, sed, nq or mh. Empty means rr. Proxiers that do not
	// use IPVS ignore it.
	IPVSScheduler string
	// IPVSStrictARP keeps nodes from answering ARP for Service addresses, which IPVS needs to be local addresses.
	IPVSStrictARP bool
}

// UnusableError reports that a proxier cannot run here.
type UnusableError struct {
	Missing string // for example "the program iptables-restore", "the kernel module ip_vs"
	Cure    string // how to provide it
}

func (e *UnusableError) Error() string { return "needs " + e.Missing + ": " + e.Cure }
