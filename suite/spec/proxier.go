// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net/netip"
	"time"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
)

// Proxier is an implementation of Service virtual IPs that can run on a node. There is one value per implementation; it
// holds no state of a node.
type Proxier interface {
	// Name returns the proxier's name in commands and reports: lower case letters, digits and dashes.
	Name() string
	// Features returns the features that the proxier claims. viplab does not detect features: a false claim makes
	// scenarios fail.
	Features() FeatureSet
	// Usable returns nil if the proxier can run on this machine in clusters of the families, an *UnusableError if
	// something is missing, or another error if the check itself fails. No families means all.
	Usable(ctx context.Context, families ...lab.Family) error
	// Other returns the same program in another mode, or nil. Each mode, when it starts, removes what the other has
	// left on the node. A proxier with another mode declares ModeSwitch.
	Other() Proxier
	// Start starts the proxier on a node. It need not program anything before the first Apply. An *UnusableError
	// reports that node.Config is not supported: scenarios that need it are skipped.
	Start(ctx context.Context, node Node) (Instance, error)
}

// Instance is a proxier on one node. Its methods are not called concurrently, except RefuseWrites. It ends with one
// call of Stop, Kill or Cleanup, and no method is called after that.
type Instance interface {
	// Apply makes the node serve the whole state, and returns when packets show it. An error is a failure of the
	// proxier; the caller retries with the newest state. Apply of an unchanged state changes nothing that a packet can
	// see.
	Apply(ctx context.Context, want *store.Snapshot) error
	// Dump writes the programmed state for human readers.
	Dump(ctx context.Context, w io.Writer) error
	// Stop ends the proxier as SIGTERM ends a program. The implementation decides whether its rules stay: the built-in
	// proxiers remove them, kube-proxy leaves them.
	Stop(ctx context.Context) error
	// Kill ends the proxier as SIGKILL ends a program: its sockets and children are gone, and its rules stay.
	Kill(ctx context.Context) error
	// Cleanup ends the proxier, removes everything that it and earlier instances programmed on the node, and changes
	// nothing else. It returns an error if the implementation cannot do that; others declare the feature Cleanup.
	Cleanup(ctx context.Context) error
	// BreakWatches ends the program's watches of the API and withholds answers until the caller calls resume. The API then
	// tells watches from before that they are too old.
	BreakWatches() (resume func())
	// RefuseWrites makes all that the program writes for some families fail (Control). It may be called during Apply.
	RefuseWrites(ctx context.Context, families ...lab.Family) (Refusal, error)
}

// Logged is implemented by instances whose program writes a log. It is among the evidence of a failure.
type Logged interface {
	// WriteLog writes what the program has logged on its node since its start, or the beginning and the end of much.
	WriteLog(w io.Writer) error
}

// Undisturbed implements BreakWatches and RefuseWrites for an Instance without watches, whose writes cannot be refused.
type Undisturbed struct{}

// BreakWatches does nothing.
func (Undisturbed) BreakWatches() (resume func()) { return func() {} }

// RefuseWrites returns a HarnessError.
func (Undisturbed) RefuseWrites(context.Context, ...lab.Family) (Refusal, error) {
	return nil, HarnessErrorf("the program's writes cannot be refused")
}

// Node is the node that a proxier runs on.
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
	// Config holds the settings of an administrator, but for those of options that the proxier does not declare.
	Config ProxyConfig
	// EndpointsGate, if not nil, is closed once the proxier may learn of EndpointSlices. Until then Apply is not called,
	// and an API server for the Store does not answer requests for EndpointSlices. Start returns when the proxier has
	// listed Services.
	EndpointsGate <-chan struct{}
	// Log is for human readers; it ends up in the directory of a failed scenario.
	Log *slog.Logger
	// Sabotage breaks the proxier on purpose. The zero value breaks nothing.
	Sabotage Sabotage
}

// Sabotage breaks parts of the built-in proxiers that call the kernel directly, so that changing the input of a program
// cannot break them. Other proxiers ignore it. The zero value breaks nothing.
type Sabotage struct {
	// CountEndpoints changes the number of endpoints that a health check port reports.
	CountEndpoints func(n int) int
	// KeepStaleFlows reports whether to keep UDP flows to removed endpoints: conntrack entries or relayed sessions.
	KeepStaleFlows func() bool
	// RemoveOnFailure reports whether to remove all rules after a failure to change them.
	RemoveOnFailure func() bool
	// IgnoreFailures reports whether to take a failure to change rules for a success.
	IgnoreFailures func() bool
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
	// MasqueradeAll rewrites the source of all Service traffic, not only where the return path requires it
	// (MasqueradeAll).
	MasqueradeAll bool
	// NodePortAddresses limits NodePorts to local addresses inside these ranges (NodePortAddresses). Empty means all
	// local addresses.
	NodePortAddresses []netip.Prefix
	// NodePortsOnPrimary limits NodePorts to the node's primary addresses (PrimaryNodePorts).
	NodePortsOnPrimary bool
	// NoExternalIPs makes the proxier ignore spec.externalIPs (ExternalIPsGate).
	NoExternalIPs bool
	// NoLocalhostNodePorts turns 127.0.0.1:nodePort off in a proxier that would serve it.
	NoLocalhostNodePorts bool
	// IPVSScheduler is how IPVS picks an endpoint: rr (the default if empty), wrr, lc, wlc, sh, dh, sed, nq or mh.
	// Other proxiers ignore it.
	IPVSScheduler string
	// IPVSStrictARP keeps nodes from answering ARP for Service addresses, which IPVS nodes own.
	IPVSStrictARP bool
	// IPVSExcludeCIDRs are ranges of addresses whose virtual servers belong to others.
	IPVSExcludeCIDRs []netip.Prefix
	// IPVSTimeouts are how long IPVS remembers idle connections.
	IPVSTimeouts IPVSTimeouts
	// MasqueradeBit is the number of the bit of the packet mark that requests masquerading (MasqueradeBit). Zero means
	// 14. Proxiers without MasqueradeMark ignore it.
	MasqueradeBit int
	// MetricsAddress is where the proxier serves its metrics (Metrics). Not valid means the proxier's default.
	MetricsAddress netip.AddrPort
	// HealthzAddress is where the proxier reports its own health (ProxierHealthz). Not valid means port 10256 of all
	// addresses.
	HealthzAddress netip.AddrPort
	// Conntrack are settings of connection tracking (ConntrackTimeouts for TCP, ConntrackSettings for the others).
	Conntrack ConntrackConfig
	// BindHardFail makes the proxier end if it cannot open the port of its health or of its metrics (BindHardFail).
	BindHardFail bool
	// ConfigFile tells the proxier its settings in a file, in place of flags (ConfigFile).
	ConfigFile bool
	// SyncPeriod is how often the proxier checks what it has programmed. A proxier that has had changes to program for
	// twice as long is not healthy. Zero means 30 s.
	SyncPeriod time.Duration
	// MinSyncPeriod is the least time between two changes of what is programmed (MinSyncPeriod). Zero means that every
	// change of the cluster is programmed at once, nil the proxier's default.
	MinSyncPeriod *time.Duration
}

// For returns the settings that a program with some features can be told. Those of an option that it lacks are zero.
func (c ProxyConfig) For(offered FeatureSet) ProxyConfig {
	for option, forget := range map[Feature]func(){
		MasqueradeAll:     func() { c.MasqueradeAll = false },
		NodePortAddresses: func() { c.NodePortAddresses = nil },
		PrimaryNodePorts:  func() { c.NodePortsOnPrimary = false },
		ExternalIPsGate:   func() { c.NoExternalIPs = false },
		MasqueradeBit:     func() { c.MasqueradeBit = 0 },
		Metrics:           func() { c.MetricsAddress = netip.AddrPort{} },
		ProxierHealthz:    func() { c.HealthzAddress = netip.AddrPort{} },
		MinSyncPeriod:     func() { c.MinSyncPeriod = nil },
		BindHardFail:      func() { c.BindHardFail = false },
		ConfigFile:        func() { c.ConfigFile = false },
		ConntrackTimeouts: func() { c.Conntrack.TCPEstablished, c.Conntrack.TCPCloseWait = 0, 0 },
		ConntrackSettings: func() {
			c.Conntrack.UDP, c.Conntrack.UDPStream, c.Conntrack.TCPBeLiberal = 0, 0, false
		},
	} {
		if !offered[option] {
			forget()
		}
	}
	return c
}

// MasqueradeMark returns the packet mark that requests masquerading.
func (c ProxyConfig) MasqueradeMark() uint32 { return 1 << cmp.Or(c.MasqueradeBit, 14) }

// IPVSTimeouts are how long IPVS remembers an idle TCP connection, one that has seen a FIN, and a UDP flow. The zero
// value of each field leaves the kernel's as it is.
type IPVSTimeouts struct{ TCP, TCPFin, UDP time.Duration }

// ConntrackConfig holds settings of the node's connection tracking. The zero value of each field is the default of
// Kubernetes.
type ConntrackConfig struct {
	// TCPEstablished and TCPCloseWait are how long idle TCP connections are remembered, UDP and UDPStream how long UDP
	// flows are, without and with answers.
	TCPEstablished, TCPCloseWait, UDP, UDPStream time.Duration
	// TCPBeLiberal makes segments outside of the window count as part of their connection.
	TCPBeLiberal bool
}

// EndedError is the error of Instance.Apply after the program has ended by itself.
type EndedError struct{ Err error }

func (e *EndedError) Error() string { return e.Err.Error() }
func (e *EndedError) Unwrap() error { return e.Err }

// UnusableError reports that a proxier cannot run here.
type UnusableError struct {
	Missing string // the missing part: "the program iptables-restore", "the kernel module ip_vs"
	Cure    string // the remedy
}

func (e *UnusableError) Error() string { return "needs " + e.Missing + ": " + e.Cure }
