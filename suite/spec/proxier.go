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
	// Name is how commands and reports call it: lower case, digits and dashes.
	Name() string
	// Features are what it claims to do. They are declared, never discovered: a claim that does not hold is a failure.
	Features() FeatureSet
	// Usable says whether it can run on this machine: nil, an *UnusableError with what is missing and what to do, or
	// another error for "could not tell".
	Usable(ctx context.Context) error
	// Start places it on a node. Nothing need be programmed before the first Apply. An *UnusableError says that it cannot
	// be configured as node.Config wants: scenarios that need that are skipped.
	Start(ctx context.Context, node Node) (Instance, error)
}

// Instance is a proxier on one node. Its methods are not called concurrently.
type Instance interface {
	// Apply makes the node obey the whole state, and returns when packets do. An error is the proxier's failure; the
	// caller retries with the newest state. Apply of an unchanged state changes nothing that a packet can see.
	Apply(ctx context.Context, want *store.Snapshot) error
	// Dump writes what is programmed, for people.
	Dump(ctx context.Context, w io.Writer) error
	// Stop takes away everything that Apply programmed and leaves the rest of the node as it is.
	Stop(ctx context.Context) error
	// Kill ends it as SIGKILL ends a process: its sockets and children are gone, and what Apply programmed stays. Nothing
	// is called after it.
	Kill(ctx context.Context) error
}

// Node is where a proxier is placed.
type Node struct {
	// Name is the node's name in the Kubernetes API; endpoints with this nodeName are local.
	Name string
	// Host is the node's network namespace: sockets and children of the proxier live there.
	Host *lab.Node
	// Families are the IP families to serve, the primary one first.
	Families []lab.Family
	// PodCIDRs are the node's own pod ranges, ClusterCIDRs those of all nodes, one per family.
	PodCIDRs, ClusterCIDRs []netip.Prefix
	// ServiceCIDRs are the ranges of ClusterIPs, one per family.
	ServiceCIDRs []netip.Prefix
	// Store is the cluster's state, for proxiers that are served it as an API instead of being told by Apply.
	Store *store.Store
	// StateDir is a private folder for files (locks, sockets, logs), empty at the start.
	StateDir string
	// Config is what an administrator would set.
	Config ProxyConfig
	// Endpoints, if not nil, is closed once the proxier may know of EndpointSlices. Until then it is not told to Apply
	// anything; one that is served the Store as an API gets no answer about them, and Start returns when it has got one
	// about Services.
	Endpoints <-chan struct{}
	// Log takes what the proxier wants to tell a person; it ends up in the folder of a failed scenario.
	Log *slog.Logger
}

// NodeOf is a node of a lab as a program on it is told of it. StateDir and Log are still to be said, and Config and
// Endpoints if they are not to be those of the zero value.
func NodeOf(l *lab.Lab, n *lab.Node, state *store.Store) Node {
	return Node{
		Name: n.Name(), Host: n, Families: l.Stack().Families(), PodCIDRs: n.PodCIDRs(), ClusterCIDRs: l.ClusterCIDRs(),
		ServiceCIDRs: state.ServiceCIDRs(), Store: state,
	}
}

// ProxyConfig holds the settings that change what a proxier promises. The zero value is the default of Kubernetes.
type ProxyConfig struct {
	// MasqueradeAll rewrites the source of all Service traffic, not only where the return path needs it.
	MasqueradeAll bool
	// NodePortAddresses limits NodePorts to local addresses inside these ranges. None means all local addresses.
	NodePortAddresses []netip.Prefix
	// NoExternalIPs leaves spec.externalIPs of all Services alone.
	NoExternalIPs bool
	// NoLocalhostNodePorts turns 127.0.0.1:nodePort off where the proxier would serve it.
	NoLocalhostNodePorts bool
	// IPVSScheduler is how IPVS picks an endpoint: rr (which empty stands for), wrr, lc, wlc, sh, dh, sed, nq or mh.
	// Others pass it over.
	IPVSScheduler string
	// IPVSStrictARP keeps nodes from answering ARP for the addresses of Services, which IPVS needs them to own.
	IPVSStrictARP bool
}

// UnusableError says that a proxier cannot run here.
type UnusableError struct {
	Missing string // what is missing: "the program iptables-restore", "the kernel module ip_vs"
	Cure    string // what to do about it
}

func (e *UnusableError) Error() string { return "needs " + e.Missing + ": " + e.Cure }
