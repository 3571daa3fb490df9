// SPDX-License-Identifier: Apache-2.0

// Package spec is the vocabulary that scenarios, proxiers and the engine share: what a scenario is, what a row expects,
// what a proxier promises, and what a verdict means. It runs nothing.
package spec

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/traffic"
)

// Priority says how much depends on a scenario.
type Priority string

// The priorities of the catalogue.
const (
	P0 Priority = "P0" // conformance, or what introductions to the subject teach
	P1 Priority = "P1" // documented behaviour of the Service API
	P2 Priority = "P2" // advanced
)

// Scenario is one behaviour, as a value. It names no proxier: where implementations differ on purpose, it needs a
// feature. Every scenario lives in a Kubernetes namespace of its own, and many run in one cluster at once.
//
// The cluster has the nodes n1 in zone east, n2 and n3 in zone west and, outside of it, the hosts client and router.
// Pods are named by Given.
type Scenario struct {
	// ID is the scenario's name: "etp-local-source-preserved".
	ID string
	// Group is the family of behaviours it belongs to: "etp-local". Scenarios of the catalogue have this field and the
	// next three from their row there.
	Group string
	// Why is a sentence that a user would recognise.
	Why string
	// Priority and Source (where the behaviour is promised) appear in the report.
	Priority Priority
	Source   string
	// Needs are the features without which a proxier is not judged.
	Needs []Feature
	// Families are the IP families that it is about: it is skipped in a cluster that lacks one. None means any.
	Families []lab.Family
	// NeedsOverlay skips it in a cluster whose nodes route pod traffic without a tunnel.
	NeedsOverlay bool
	// HoldsWithoutProxier marks a scenario that passes on a proxier that does nothing: it states what must not happen, or
	// what the cluster itself owes. Every other scenario fails there.
	HoldsWithoutProxier bool
	// Cluster, if not nil, gives the scenario another cluster than the default one, which most scenarios share. Scenarios
	// that change what others would see (sysctls, firewall policies, restarts) need a cluster for themselves.
	Cluster *ClusterConfig
	// NodePorts are the ports in the range of NodePorts that the scenario chooses itself. No other scenario may choose
	// them, because scenarios share clusters and one may expect a port to be closed.
	NodePorts []uint16
	// Given is what the cluster holds at the start. Objects without a namespace get the scenario's.
	Given []store.Object
	// Steps run in order; a step that fails ends the scenario.
	Steps []Step
}

// ClusterConfig describes a cluster other than the default one. The zero value is a cluster like the default one, but
// for one scenario alone.
type ClusterConfig struct {
	Proxy ProxyConfig
	// Sysctls are set on every node before the proxier starts.
	Sysctls []netns.Setting
	// Nodes are those that get a proxier. None means all. The others have pods as well, but no probe of a Service starts
	// there or goes to their NodePorts.
	Nodes []string
	// Shared lets scenarios with equal configurations run in one cluster, side by side. They must not change what others
	// see.
	Shared bool
}

// Step is a change of the cluster and what must hold after it.
type Step struct {
	// Name is a phrase for messages: "the policy becomes Cluster".
	Name string
	// Do are the changes, one after another. An error of a change is the harness's. Rows are probed once every node has
	// programmed the changes.
	Do []Action
	// Rows are probed together and judged together.
	Rows []Row
	// Check, if not nil, runs after the rows and checks what rows cannot express. An error is a failure of the proxier,
	// unless it is a HarnessError, as the errors of World's methods are where the harness is to blame.
	Check func(ctx context.Context, w World) error
}

// Action is one change of the cluster.
type Action struct {
	// Name is a phrase for messages: "delete pod a2".
	Name string
	Run  func(ctx context.Context, w World) error
}

// World is what a running scenario sees and touches: its own part of the cluster.
type World interface {
	// Lab is the network, Kube the cluster's state. Changes of the state reach the proxiers by themselves.
	Lab() *lab.Lab
	Store() *store.Store
	// Namespace is the scenario's Kubernetes namespace.
	Namespace() string
	// Features are what the proxier declares, and the enforcer beside it.
	Features() FeatureSet
	// Host finds a node ("n1"), an outside host ("client", "router") or a pod of the scenario ("a1"; "other/a1" in a
	// further namespace that it has made).
	Host(name string) (*lab.Host, error)
	// Server is the echo server of a pod of the scenario.
	Server(pod string) (*traffic.Server, error)
	// Resolve turns a target into an address.
	Resolve(to Target, family lab.Family, proto string) (netip.AddrPort, error)
	// Expect settles the cluster, probes rows side by side and judges them, as a step does.
	Expect(ctx context.Context, rows ...Row) error
	// During settles the cluster and probes rows over and over, each in its own turn, while f runs, then judges every
	// answer. Each request must reach one server once. Rows keep their meaning, but for Times: probes go on until f
	// returns.
	During(ctx context.Context, rows []Row, f func(ctx context.Context, t Traffic) error) error
	// Life is the proxier on a node.
	Life(node string) Life
	// Enforcer is what enforces network policies on a node: the enforcer, or a proxier that does it itself.
	Enforcer(node string) Life
	// Observe probes a row in every family that it is for. The caller judges the observations.
	Observe(ctx context.Context, row Row) ([]Observation, error)
	// Probe sends one probe from a host to a target and keeps the connection open for the caller to close.
	Probe(ctx context.Context, from string, to Target, family lab.Family, proto string) (*traffic.Conn, traffic.Answer,
		error)
	// Flow looks up the conntrack entry of a node by the addresses of its first packet. It is false if there is none.
	Flow(node, proto string, orig observe.Tuple) (observe.Flow, bool, error)
	// Flows lists the conntrack entries of a node. It takes tens of milliseconds: prefer Flow.
	Flows(ctx context.Context, node string, keep func(observe.Flow) bool) ([]observe.Flow, error)
	// Note adds a line to the report of a scenario that passes: a figure, or a choice that the proxier made.
	Note(text string)
	// Apply creates or updates objects, those without a namespace in the scenario's.
	Apply(objs ...store.Object) error
	// Settle returns when every node has programmed every change made so far.
	Settle(ctx context.Context) error
	// Serve starts an echo server on all addresses of a node or an outside host. It is named after the host and ends with
	// the scenario. Ports are shared with other scenarios: pick one that no other uses.
	Serve(host, proto string, port uint16) error
	// Run runs a program in a host's namespace, in a pod as its container would, and returns what it printed.
	Run(ctx context.Context, host string, argv ...string) (string, error)
}

// HarnessError marks an error as the harness's own: it makes the scenario broken instead of failed.
type HarnessError struct{ Err error }

func (f *HarnessError) Error() string { return "harness: " + f.Err.Error() }
func (f *HarnessError) Unwrap() error { return f.Err }

// HarnessErrorf is a HarnessError with a message.
func HarnessErrorf(format string, args ...any) error {
	return &HarnessError{fmt.Errorf(format, args...)}
}

// Must returns v. If err is not nil, it makes the scenario broken: it panics with a HarnessError, which the engine turns
// into the error of the Action, the Check or the function of During that called it, on the same goroutine. It is for
// what fails only if the harness does: finding a host, opening a socket, running a program. Code that retries on an
// error, and code on a goroutine of its own, returns the error instead.
func Must[T any](v T, err error) T {
	MustDo(err)
	return v
}

// MustDo is Must without a value.
func MustDo(err error) {
	if fault, ok := err.(*HarnessError); ok {
		panic(fault)
	} else if err != nil {
		panic(&HarnessError{err})
	}
}

var idPattern = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)+$`)

// Validate reports what is wrong with a scenario as it is written.
func (s Scenario) Validate() error {
	switch {
	case !idPattern.MatchString(s.ID) || len(s.ID) > 63:
		return fmt.Errorf("scenario %q: the id must be at most 63 characters of lower case words with dashes", s.ID)
	case s.Group == "" || s.Why == "" || s.Priority == "" || s.Source == "":
		return fmt.Errorf("scenario %s: group, why, priority and source must be given", s.ID)
	case len(s.Steps) == 0:
		return fmt.Errorf("scenario %s: no steps: it would prove nothing", s.ID)
	}
	for _, f := range s.Needs {
		if !f.Known() {
			return fmt.Errorf("scenario %s: needs unknown feature %q", s.ID, f)
		}
	}
	for i, step := range s.Steps {
		if len(step.Rows) == 0 && step.Check == nil {
			return fmt.Errorf("scenario %s: step %d proves nothing", s.ID, i+1)
		}
		for _, r := range step.Rows {
			if err := r.validate(); err != nil {
				return fmt.Errorf("scenario %s: step %d: %w", s.ID, i+1, err)
			}
			if p := r.To.Port; r.To.Kind == HostPort && isNodePort(p) && !slices.Contains(s.NodePorts, p) {
				return fmt.Errorf("scenario %s: step %d: port %d is not among its NodePorts", s.ID, i+1, p)
			}
		}
	}
	return s.validateNodePorts()
}

// validateNodePorts checks that NodePorts lists what the Services of Given ask for.
func (s Scenario) validateNodePorts() error {
	for _, o := range s.Given {
		service, ok := o.(*corev1.Service)
		if !ok {
			continue
		}
		for _, p := range service.Spec.Ports {
			if port := uint16(p.NodePort); port != 0 && !slices.Contains(s.NodePorts, port) {
				return fmt.Errorf("scenario %s: Service %s asks for NodePort %d, which is not among the scenario's NodePorts",
					s.ID, service.Name, port)
			}
		}
	}
	return nil
}

func isNodePort(port uint16) bool { return port >= 30000 && port <= 32767 }
