// SPDX-License-Identifier: Apache-2.0

// Package labtest is the lab in an ordinary Go test: New gives one value that applies manifests, places a proxier,
// sends probes, captures packets and reads connection tracking, and that ends with the test. Its methods wait until
// pods run and programs have converged before they send, and choose the fences that prove silence. A method that cannot
// do its work ends the test.
//
//	func TestMain(m *testing.M) { labtest.Main(m) }
//
//	func TestServiceIP(t *testing.T) {
//		l := labtest.New(t, labtest.Options{Proxier: iptables.New(iptables.NFT)})
//		l.ApplyFile("testdata/web.yaml")
//		o := l.Probe("shell", spec.ClusterIPOf("web", 80))
//		gomega.NewWithT(t).Expect(o.Answer).To(match.Replied())
//	}
//
// # Root and TestMain
//
// Main makes a sandbox for all tests of a package. An ordinary user needs it. As root the tests also run without it,
// for example in a debugger. Then all network namespaces still end with the process, but programs that a test starts
// see the machine's /run and its processes, such as /run/xtables.lock, and a test that is killed leaves programs
// running.
//
// A package that imports labtest compiles on Linux alone: begin its test files with "//go:build linux".
package labtest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster"
	"github.com/viplab/viplab/lab/cluster/manifest"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/proxiers/none"
	"github.com/viplab/viplab/suite/spec"
)

// Options describe a lab. The zero value is a cluster of the nodes n1, n2 and n3, dual-stack, with bridged pods and no
// proxier.
type Options struct {
	// Nodes are the names of the nodes. None means n1, n2 and n3.
	Nodes []string
	// Families are the IP families: lab.V4, lab.V6 or both. None means both.
	Families []lab.Family
	// PodNetwork is how nodes wire pods. The zero value is lab.Bridge.
	PodNetwork lab.PodNetwork
	// Overlay is how pod traffic crosses between nodes. The zero value is lab.Auto.
	Overlay lab.Overlay
	// Proxier, if not nil, is placed on every node. Lab.Place does so later.
	Proxier spec.Proxier
	// Enforcer, if not nil, enforces network policies on every node.
	Enforcer spec.Proxier
}

// limit bounds each wait for pods or programs, to detect hangs. Slow machines get more.
const limit = 3 * time.Minute

// Lab is a cluster in the network namespaces of a test. Its methods are for the goroutine of the test.
//
// Hosts have the names of nodes, "client" and "router" for those outside of the cluster, and of pods: "web" in the
// namespace default, or "shop/web" in another. Answers name servers in the same way.
type Lab struct {
	t        testing.TB
	standing *engine.Standing
	world    spec.World
	endWorld func() error
	captures []*Capture
}

// New builds a lab that ends with the test. It ends the test if that is impossible: see Require.
func New(t testing.TB, o Options) *Lab {
	t.Helper()
	Require(t)
	topology, err := o.topology()
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.New(t.Context(), topology)
	if err != nil {
		t.Fatal(err)
	}
	p := o.Proxier
	if p == nil {
		p = none.New()
	}
	l := &Lab{t: t}
	l.standing, err = engine.Stand(t.Context(), c, engine.Options{Enforcer: o.Enforcer}, p)
	if err != nil {
		t.Fatal(err)
	}
	l.world, l.endWorld = l.standing.World("default")
	t.Cleanup(l.close)
	return l
}

func (o Options) topology() (lab.Topology, error) {
	stack, err := lab.StackOf(o.Families...)
	t := lab.Topology{Stack: stack, PodNetwork: o.PodNetwork, Overlay: o.Overlay}
	if len(o.Nodes) == 0 {
		o.Nodes = []string{"n1", "n2", "n3"}
	}
	for _, name := range o.Nodes {
		t.Nodes = append(t.Nodes, lab.NodeSpec{Name: name})
	}
	return t, err
}

func (l *Lab) close() {
	l.t.Helper()
	err := l.endCaptures()
	err = errors.Join(err, l.endWorld(), l.standing.Close(context.WithoutCancel(l.t.Context())))
	if err != nil {
		l.t.Error(err)
	}
}

// try ends the test if err is not nil.
func (l *Lab) try(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// Cluster returns the cluster with the state that the API would serve: Cluster().Store() changes it.
func (l *Lab) Cluster() *cluster.Cluster { return l.standing.Cluster() }

// World returns the cluster as a scenario sees it, with the namespace default.
func (l *Lab) World() spec.World { return l.world }

// Host returns a host, to run programs in its network namespace or to open sockets there.
func (l *Lab) Host(name string) *lab.Host {
	l.t.Helper()
	l.Settle()
	h, err := l.world.Host(name)
	l.try(err)
	return h
}

// Apply creates or updates the objects of a manifest: YAML documents or JSON. Objects without a namespace get default.
func (l *Lab) Apply(text string) {
	l.t.Helper()
	l.apply("manifest", []byte(text))
}

// ApplyFile is Apply with the text of a file.
func (l *Lab) ApplyFile(file string) {
	l.t.Helper()
	text, err := os.ReadFile(file)
	l.try(err)
	l.apply(file, text)
}

func (l *Lab) apply(source string, text []byte) {
	l.t.Helper()
	objects, err := manifest.Decode(source, text)
	l.try(err)
	if len(objects) == 0 {
		l.t.Fatalf("%s: it has no objects", source)
	}
	l.try(l.Cluster().Store().Apply(objects...))
}

// Delete deletes an object of the namespace default, or of another: "shop/web". Cluster().Store() deletes objects that
// have no namespace.
func (l *Lab) Delete(kind store.Kind, name string) {
	l.t.Helper()
	namespace, rest, ok := strings.Cut(name, "/")
	if !ok {
		namespace, rest = "default", name
	}
	l.try(l.Cluster().Store().Delete(kind, namespace, rest))
}

// Place puts a proxier on every node, in place of the one before, which is stopped and removes its rules if it can.
func (l *Lab) Place(p spec.Proxier) {
	l.t.Helper()
	ctx, cancel := l.limited("the proxier has not converged")
	defer cancel()
	l.try(l.endWorld())
	l.try(l.standing.Switch(ctx, p))
	l.world, l.endWorld = l.standing.World("default")
}

// Settle waits until all pods run and all programs have programmed the newest state. Other methods that look at the
// network call it themselves.
func (l *Lab) Settle() {
	l.t.Helper()
	ctx, cancel := l.limited("the cluster has not converged")
	defer cancel()
	for _, ns := range l.Cluster().Store().Snapshot().Namespaces {
		l.try(l.Cluster().WaitPods(ctx, ns.Name))
	}
	l.try(l.standing.Settle(ctx))
}

func (l *Lab) limited(what string) (context.Context, context.CancelFunc) {
	d := machine.Limit(limit)
	return context.WithTimeoutCause(l.t.Context(), d, fmt.Errorf("%s within %s", what, d))
}

// Probe sends one TCP request from a host to a target, in the first IP family of the lab, and returns the observation.
// The matchers of package match take its Answer. Observe sends other probes.
func (l *Lab) Probe(from string, to spec.Target) spec.Observation {
	l.t.Helper()
	return l.Observe(spec.Row{From: from, To: to, Family: l.Cluster().Lab().Stack().Families()[0]})[0]
}

// Observe sends the probes of a row, in each IP family of the lab unless the row names one, and returns the
// observations. It judges nothing.
func (l *Lab) Observe(row spec.Row) []spec.Observation {
	l.t.Helper()
	l.Settle()
	seen, err := l.world.Observe(l.t.Context(), row)
	l.try(err)
	if len(seen) == 0 {
		l.t.Fatalf("the row from %s to %s concerns no IP family of this lab", row.From, row.To)
	}
	return seen
}

// Expect sends the probes of rows and judges them together, as a step of a scenario does. It fails the test with a
// table of what the rows want and got, and does not end it.
func (l *Lab) Expect(rows ...spec.Row) {
	l.t.Helper()
	l.Settle()
	err := l.world.Expect(l.t.Context(), rows...)
	if fault := (*spec.HarnessError)(nil); errors.As(err, &fault) {
		l.t.Fatal(err)
	}
	if err != nil {
		l.t.Error(err)
	}
}

// Resolve returns the address and TCP port of a target in an IP family.
func (l *Lab) Resolve(to spec.Target, family lab.Family) netip.AddrPort {
	l.t.Helper()
	l.Settle()
	at, err := l.world.Resolve(to, family, "tcp")
	l.try(err)
	return at
}

// Flow returns the entry of an observed TCP connection in the conntrack table of a node. It ends the test if there is
// none. Flows lists others.
func (l *Lab) Flow(node string, o spec.Observation) observe.Flow {
	l.t.Helper()
	flow, ok, err := l.world.Flow(node, "tcp", observe.Tuple{Src: o.Source, Dst: o.To})
	l.try(err)
	if !ok {
		l.t.Fatalf("%s has no conntrack entry of %s -> %s", node, o.Source, o.To)
	}
	return flow
}

// Flows returns the entries of the conntrack table of a node that keep accepts, or all if keep is nil.
func (l *Lab) Flows(node string, keep func(observe.Flow) bool) []observe.Flow {
	l.t.Helper()
	flows, err := l.world.Flows(l.t.Context(), node, keep)
	l.try(err)
	return flows
}

// Capture records the packets of a host from now on, at all of its devices.
type Capture struct {
	t       testing.TB
	capture *observe.Capture
}

// Capture starts a recording on a host. If the test fails, packets.pcapng in t.ArtifactDir() has the packets of all
// recordings.
func (l *Lab) Capture(host string) *Capture {
	l.t.Helper()
	c, err := observe.StartCapture(l.Host(host).NS)
	l.try(err)
	out := &Capture{l.t, c}
	l.captures = append(l.captures, out)
	return out
}

// Packets returns the IP packets so far, in the order in which they were recorded.
func (c *Capture) Packets() []*observe.Packet {
	c.t.Helper()
	var out []*observe.Packet
	for _, f := range c.capture.Packets() {
		if p, err := observe.Decode(f); err == nil { // others are ARP and the like
			out = append(out, p)
		}
	}
	return out
}

// endCaptures ends the recordings, and writes them if the test has failed.
func (l *Lab) endCaptures() error {
	var all []*observe.Capture
	var errs []error
	for _, c := range l.captures {
		errs, all = append(errs, c.capture.Close()), append(all, c.capture)
	}
	if !l.t.Failed() || len(all) == 0 {
		return errors.Join(errs...)
	}
	file := filepath.Join(l.t.ArtifactDir(), "packets.pcapng")
	f, err := os.Create(file)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	l.t.Logf("packets: %s", file)
	return errors.Join(slices.Concat(errs, []error{observe.WritePcapng(f, all...), f.Close()})...)
}
