package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster"
	"github.com/viplab/viplab/lab/kube"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/pace"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/lab/watch"
	"github.com/viplab/viplab/suite/spec"
)

// nodes are the nodes of every cluster that scenarios run in.
var nodes = []lab.NodeSpec{{Name: "n1"}, {Name: "n2"}, {Name: "n3"}}

// zones are where the nodes are. Nothing but topology hints speaks of zones.
var zones = map[string]string{"n1": "east", "n2": "west", "n3": "west"}

// environment is a cluster with a proxier on every node.
type environment struct {
	*cluster.Cluster
	proxier   spec.Proxier
	own       spec.Own
	agents    []*agent                    // one for each node, in their order
	conntrack map[string]*watch.Conntrack // by node
	stateDir  string
	// applyLimit is how long a node may take to obey a change.
	applyLimit time.Duration
	log        *slog.Logger
	logs       *logBook
}

// build makes a cluster and places the proxier. What goes wrong with the cluster is a Fault, what goes wrong with the
// proxier is not.
func (r *Run) build(ctx context.Context, p spec.Proxier, own spec.Own) (*environment, error) {
	c, err := cluster.New(ctx, lab.Topology{
		Nodes: nodes, Stack: r.options.Stack, PodNetwork: r.options.PodNetwork, Overlay: r.options.Overlay,
	})
	if err != nil {
		return nil, spec.Faultf("build the cluster: %w", err)
	}
	r.takeNote(c.Lab())
	logs := &logBook{}
	env := &environment{
		Cluster: c, proxier: p, own: own, applyLimit: cmp.Or(r.options.ApplyLimit, pace.Limit(applyLimit)), conntrack: map[string]*watch.Conntrack{},
		logs: logs, log: slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if env.stateDir, err = sandbox.TempDir("proxier-"); err != nil {
		return nil, errors.Join(spec.Faultf("make a folder for the proxier's state: %w", err), c.Close())
	}
	for _, n := range c.Lab().Nodes() {
		if err := env.equip(n, own); err != nil {
			return nil, errors.Join(spec.Faultf("%s: %w", n.Name(), err), env.close(ctx))
		}
		ct, err := watch.NewConntrack(n.NS)
		if err != nil {
			return nil, errors.Join(&spec.Fault{Err: err}, env.close(ctx))
		}
		env.conntrack[n.Name()] = ct
		a, err := env.place(ctx, n, p, nil)
		if err != nil {
			return nil, errors.Join(err, env.close(ctx))
		}
		env.agents = append(env.agents, a)
	}
	return env, nil
}

func (r *Run) takeNote(l *lab.Lab) {
	overlay, reason := l.Overlay()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note = fmt.Sprintf("%d nodes, %s pods, overlay %s (%s), %s",
		len(l.Nodes()), l.Topology().PodNetwork, overlay, reason, l.Stack())
}

// place starts a proxier on one node. If gate is not nil, EndpointSlices are kept from it until that is closed.
func (e *environment) place(ctx context.Context, n *lab.Node, p spec.Proxier, gate <-chan struct{}) (*agent, error) {
	state, err := os.MkdirTemp(e.stateDir, n.Name()+"-")
	if err != nil {
		return nil, &spec.Fault{Err: err}
	}
	return startAgent(context.WithoutCancel(ctx), p, spec.Node{
		Name: n.Name(), Host: n, Families: e.Lab().Stack().Families(),
		PodCIDRs: n.PodCIDRs(), ClusterCIDRs: e.Lab().ClusterCIDRs(), ServiceCIDRs: e.Store().ServiceCIDRs(),
		Store: e.Store(), StateDir: state, Config: e.own.Proxy, Endpoints: gate, Log: e.log.With("node", n.Name()),
	}, e.Store())
}

// patientTracking makes nodes remember UDP flows longer than the usual 30 s, which a step takes on a slow machine: a flow
// would be led anew then, for no reason of the proxier's.
var patientTracking = []netns.Setting{
	{Key: "net.netfilter.nf_conntrack_udp_timeout", Value: "600", Optional: true},
	{Key: "net.netfilter.nf_conntrack_udp_timeout_stream", Value: "600", Optional: true},
}

// equip makes a node what the administrator wants it to be before a proxier comes.
func (e *environment) equip(n *lab.Node, own spec.Own) error {
	if err := n.SetSysctls(append(patientTracking, own.Sysctls...)...); err != nil {
		return err
	}
	return kube.Update(e.Store(), "", n.Name(), func(o *corev1.Node) {
		o.Labels[corev1.LabelTopologyZone] = zones[n.Name()]
	})
}

// settle returns when every node that has a proxier obeys the newest state.
func (e *environment) settle(ctx context.Context) error {
	revision := e.Store().Snapshot().Revision
	for _, a := range e.agents {
		if a.gone {
			continue
		}
		if err := a.wait(ctx, revision, e.applyLimit); err != nil {
			return err
		}
	}
	return nil
}

// agent is the agent of a node, nil if there is none.
func (e *environment) agent(node string) *agent {
	for _, a := range e.agents {
		if a.node == node {
			return a
		}
	}
	return nil
}

// close stops the proxiers and takes everything down.
func (e *environment) close(ctx context.Context) error {
	errs := make([]error, len(e.agents))
	var wg sync.WaitGroup
	for i, a := range e.agents {
		wg.Go(func() { errs[i] = a.stop(ctx, e.applyLimit) })
	}
	wg.Wait()
	for _, ct := range e.conntrack {
		errs = append(errs, ct.Close())
	}
	return errors.Join(append(errs, e.Cluster.Close(), os.RemoveAll(e.stateDir))...)
}

// doors tells how to enter each namespace from outside of the sandbox.
func (e *environment) doors() []string {
	var out []string
	door := func(ns *netns.NS) {
		out = append(out, fmt.Sprintf("%-8s %s nsenter --net=/proc/%d/fd/%d", ns.Name(), sandbox.Door(), os.Getpid(), ns.Fd()))
	}
	for _, n := range e.Lab().Nodes() {
		door(n.NS)
	}
	door(e.Lab().Client().NS)
	return out
}

// names maps every address of the lab to the name of its host as a scenario knows it. The kernel is asked for those of
// the nodes: bridges, tunnels and proxiers add addresses of their own.
func (e *environment) names(namespace string) (map[netip.Addr]string, error) {
	names := map[netip.Addr]string{}
	l := e.Lab()
	add := func(name string, addrs []netip.Addr) {
		for _, a := range addrs {
			names[a] = name
		}
	}
	for _, p := range l.Pods() {
		add(shortName(namespace, p.Name()), p.Addrs())
	}
	for _, n := range l.Nodes() {
		addrs, err := n.LocalAddrs()
		if err != nil {
			return nil, err
		}
		add(n.Name(), addrs)
	}
	add("client", l.Client().Addrs())
	add("router", l.Router().Addrs())
	return names, nil
}

// logBook keeps what proxiers log, for the folder of a failure. It is safe for concurrent use.
type logBook struct {
	mu   sync.Mutex
	text []byte
}

// logLimit is how much of a proxier's log is kept: the newest part of it. A proxier that floods its log must not fill
// the machine's memory.
const logLimit = 1 << 20

func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, p...)
	if over := len(b.text) - logLimit; over > logLimit {
		b.text = append([]byte(nil), b.text[over:]...)
	}
	return len(p), nil
}

func (b *logBook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.text)
}
