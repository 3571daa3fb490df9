// SPDX-License-Identifier: Apache-2.0

// Package spec defines the values that scenarios, proxiers and the engine share: scenarios, the rows that they expect,
// the features that a proxier promises, and verdicts. It runs nothing.
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

// Priority is how important a scenario is.
type Priority string

// The priorities of the catalogue.
const (
	P0 Priority = "P0" // conformance, or what introductions to Services teach
	P1 Priority = "P1" // documented behaviour of the Service API
	P2 Priority = "P2" // advanced
)

// Scenario is one behaviour. It names no proxier: where implementations differ on purpose, it needs a feature. Every
// scenario has a Kubernetes namespace of its own, and many run in one cluster at once.
//
// The cluster has the nodes n1 in zone east, n2 and n3 in zone west, and the outside hosts client and router. Given
// names the pods.
type Scenario struct {
	// ID is the scenario's name: "etp-local-source-preserved".
	ID string
	// Group is the family of behaviours that it belongs to: "etp-local". Scenarios of the catalogue take this field and
	// the next three from their entry there.
	Group string
	// Why is a sentence that a user would recognise.
	Why string
	// Priority appears in the report, as does Source, the place that documents the behaviour.
	Priority Priority
	Source   string
	// Needs lists the required features. Proxiers that lack one are not judged.
	Needs []Feature
	// Families are the IP families that it tests: a cluster that lacks one skips it. None means any.
	Families []lab.Family
	// NeedsOverlay skips the scenario in a cluster whose nodes route pod traffic without a tunnel.
	NeedsOverlay bool
	// HoldsWithoutProxier marks a scenario that passes on a proxier that does nothing, because it requires that
	// something does not happen, or tests the cluster itself. Every other scenario must fail there.
	HoldsWithoutProxier bool
	// Cluster, if not nil, requests a cluster other than the default one, which most scenarios share. Scenarios with
	// side effects on others (sysctls, firewall policies, restarts) need their own cluster.
	Cluster *ClusterConfig
	// NodePorts lists the NodePorts that the scenario chooses itself, from 30000 to 30085, which a cluster gives to no
	// other Service (KEP-3668). No other scenario may choose them, because scenarios share clusters and one may expect a
	// port to be closed.
	NodePorts []uint16
	// Waits marks a scenario that lets seconds pass, as for a timeout. It begins before the others of its cluster, so
	// that they use the time.
	Waits bool
	// Given holds the objects at the start. Objects without a namespace get the scenario's.
	Given []store.Object
	// Steps run in order. A step that fails ends the scenario.
	Steps []Step
}

// ClusterConfig describes a cluster other than the default one. The zero value is configured like the default cluster,
// but runs one scenario alone.
type ClusterConfig struct {
	Proxy ProxyConfig
	// Sysctls are set on every node before the proxier starts.
	Sysctls []netns.Setting
	// Nodes lists the nodes that get a proxier. None means all. The others have pods as well, but no probe of a Service
	// starts there or goes to their NodePorts.
	Nodes []string
	// Shared lets scenarios with equal configurations run in one cluster, side by side. They must have no side effects
	// on each other.
	Shared bool
	// Quiet builds the cluster when the scenarios in all other clusters of the proxier have ended, because its own
	// measure how long the proxier takes.
	Quiet bool
}

// Step is a change of the cluster and the rows that must hold after it.
type Step struct {
	// Name is a phrase for messages: "the policy becomes Cluster".
	Name string
	// Do lists the changes, which run one after another. An error of a change counts as a failure of the harness. Rows
	// are probed once every node has programmed the changes.
	Do []Action
	// Rows are probed concurrently and judged together.
	Rows []Row
	// Check, if not nil, runs after the rows, for requirements that rows cannot express. An error is a failure of the
	// proxier, unless it is a HarnessError or a NotRunError. World's methods return a HarnessError if the harness is at
	// fault.
	Check func(ctx context.Context, w World) error
}

// Action is one change of the cluster.
type Action struct {
	// Name is a phrase for messages: "delete pod a2".
	Name string
	Run  func(ctx context.Context, w World) error
}

// World is the part of the cluster that a running scenario sees and changes.
type World interface {
	// Lab returns the network, and Store the cluster's state. Changes of the state reach the proxiers without further
	// calls.
	Lab() *lab.Lab
	Store() *store.Store
	// Namespace returns the scenario's Kubernetes namespace.
	Namespace() string
	// Features returns the features of the proxier and of the enforcer beside it.
	Features() FeatureSet
	// Host returns a node ("n1"), an outside host ("client", "router") or a pod of the scenario ("a1", or "other/a1" in
	// a further namespace of its own).
	Host(name string) (*lab.Host, error)
	// Server returns the echo server of a pod of the scenario.
	Server(pod string) (*traffic.Server, error)
	// Resolve returns the address of a target.
	Resolve(to Target, family lab.Family, proto string) (netip.AddrPort, error)
	// Expect waits until the cluster has converged, probes the rows concurrently and judges them, as a step does.
	Expect(ctx context.Context, rows ...Row) error
	// During settles the cluster, probes each row repeatedly while f runs, and then judges every answer. Each request
	// must reach exactly one server, once. Rows mean the same as in a step, except that Times is ignored: probes go on
	// until f returns.
	During(ctx context.Context, rows []Row, f func(ctx context.Context, t Traffic) error) error
	// ProxierControl returns the control of the proxier program on a node.
	ProxierControl(node string) Control
	// EnforcerControl returns the control of the program on a node that enforces network policies, which may be the
	// proxier.
	EnforcerControl(node string) Control
	// Observe probes a row in every family that it applies to, and returns the observations without judging them.
	Observe(ctx context.Context, row Row) ([]Observation, error)
	// Probe sends one probe from a host to a target and keeps the connection open. The caller closes it.
	Probe(ctx context.Context, from string, to Target, family lab.Family, proto string) (*traffic.Conn, traffic.Answer,
		error)
	// Flow returns the conntrack entry of a node for the addresses of the flow's first packet, and reports whether it
	// exists.
	Flow(node, proto string, orig observe.Tuple) (observe.Flow, bool, error)
	// Flows returns the conntrack entries of a node that keep accepts. It takes tens of milliseconds: prefer Flow.
	Flows(ctx context.Context, node string, keep func(observe.Flow) bool) ([]observe.Flow, error)
	// Capture records the packets at the devices of hosts, one capture for each host, in their order. The caller closes
	// them. If the scenario fails, captured.pcapng has what the last call recorded.
	Capture(hosts ...string) ([]*observe.Capture, error)
	// Note adds a line to the report of a scenario that passes: a measurement, or a choice that the proxier made.
	Note(text string)
	// Apply creates or updates objects. Those without a namespace get the scenario's.
	Apply(objs ...store.Object) error
	// Settle returns when every node has programmed every change made so far.
	Settle(ctx context.Context) error
	// Serve starts an echo server on all addresses of a node or an outside host. It has the host's name and ends with
	// the scenario. The port must be one that no other scenario uses.
	Serve(host, proto string, port uint16) error
	// Run runs a program in a host's namespace and returns its output. In a pod, the program runs as in its container.
	Run(ctx context.Context, host string, argv ...string) (string, error)
}

// HarnessError marks an error as the harness's own. It makes the verdict broken instead of failed.
type HarnessError struct{ Err error }

func (f *HarnessError) Error() string { return "harness: " + f.Err.Error() }
func (f *HarnessError) Unwrap() error { return f.Err }

// HarnessErrorf returns a HarnessError with a message.
func HarnessErrorf(format string, args ...any) error {
	return &HarnessError{fmt.Errorf(format, args...)}
}

// NotRunError reports that this machine cannot judge a scenario at the moment. It makes the verdict skipped, not run.
type NotRunError struct{ Reason string }

func (n *NotRunError) Error() string { return n.Reason }

// Must returns v. If err is not nil, it makes the scenario broken: it panics with a HarnessError, which the engine
// turns into the error of the Action, the Check or the function of During that called it, on the same goroutine. Use it
// for operations that fail only if the harness is at fault, such as finding a host, opening a socket or running a
// program. Code that retries on an error, and code on a goroutine of its own, returns the error instead.
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

// Try returns v. If err is not nil, it ends the Check, or the function of During, that called it on the same goroutine:
// err becomes its error. Use it for operations that fail if the proxier is at fault, and Must for those that fail only
// if the harness is.
func Try[T any](v T, err error) T {
	TryDo(err)
	return v
}

// TryDo is Try without a value.
func TryDo(err error) {
	if err != nil {
		panic(tried{err})
	}
}

// tried is what Try panics with.
type tried struct{ err error }

// Catch calls f and returns its error, or the error with which Try or Must ended f.
func Catch(f func() error) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case tried:
			err = p.err
		case *HarnessError:
			err = p
		default:
			panic(p)
		}
	}()
	return f()
}

var idPattern = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)+$`)

// Validate returns an error if the scenario is not well-formed.
func (s Scenario) Validate() error {
	switch {
	case !idPattern.MatchString(s.ID) || len(s.ID) > 63:
		return fmt.Errorf("scenario %q: the id must be two or more lower case words joined by dashes, at most 63 characters",
			s.ID)
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

// lastToChoose is the last of the ports from 30000 that an allocator leaves to people as long as others are free: 1/32
// of the range, at most 128 (https://kubernetes.io/blog/2023/05/11/nodeport-dynamic-and-static-allocation/).
const lastToChoose = 30085

// validateNodePorts checks that NodePorts lists the ports that the Services of Given choose, and that no other Service
// can get them.
func (s Scenario) validateNodePorts() error {
	for _, p := range s.NodePorts {
		if p < 30000 || p > lastToChoose {
			return fmt.Errorf("scenario %s: NodePort %d may belong to another Service by then: choose one from 30000 to %d",
				s.ID, p, lastToChoose)
		}
	}
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
