// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/lab/link"
	"github.com/viplab/viplab/lab/netns"
)

// workers is the number of machines built at a time. One kernel lock guards all network configuration anyway.
const workers = 2

// Build makes the network and returns when every path in it works. On failure it removes everything that it made.
func Build(ctx context.Context, t Topology) (*Lab, error) {
	if err := t.Validate(); err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	growDescriptorTable()
	l := &Lab{topology: t, network: newPodNetwork(t.PodNetwork), pods: map[string]*Pod{}, names: newNames()}
	if err := l.build(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Lab) build(ctx context.Context) error {
	var err error
	if l.overlay, l.reason, err = chooseOverlay(l.topology.Overlay, l.Stack()); err != nil {
		return err
	}
	if l.underlay, err = newHost(switchName, nil, nil); err != nil {
		return err
	}
	if l.settings, err = newSettings(l.underlay.NS, l.topology); err != nil {
		return err
	}
	if err := l.underlay.SetSysctls(slices.Concat(bridgeSettings("0", true), addressSettings(IPv4))...); err != nil {
		return err
	}
	lan := link.Bridge{Dev: devSwitch, MAC: link.MAC{0x02, 2, 192, 168, 7, 0}, MTU: underlayMTU}
	if err := l.underlay.apply(link.Up{Dev: link.Loopback}, lan); err != nil {
		return err
	}
	for i, spec := range l.topology.Nodes {
		l.names.addNode(spec)
		l.nodes = append(l.nodes, l.newNode(i+1))
	}
	if err := l.buildMachines(ctx); err != nil {
		return err
	}
	ports := each(machines(l.nodes), func(m machine) link.Op {
		return link.Port{Dev: switchPort(m.host), Bridge: devSwitch}
	})
	if err := l.underlay.apply(ports...); err != nil {
		return err
	}
	return l.ready(ctx)
}

// newHost returns a machine whose namespace is still empty.
func newHost(name string, addrs []netip.Addr, settings []netns.Setting) (*Host, error) {
	ns, err := netns.New(name, settings...)
	if err != nil {
		return nil, err
	}
	return &Host{NS: ns, addrs: addrs}, nil
}

// buildMachines makes all machines of the LAN, several at once.
func (l *Lab) buildMachines(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	g.Go(func() (err error) {
		l.router, err = l.buildHost(routerName, routerMachine(), l.settings.router)
		return err
	})
	g.Go(func() (err error) {
		l.client, err = l.buildHost(clientName, clientMachine(), l.settings.client)
		return err
	})
	for i, n := range l.nodes {
		g.Go(func() error { return l.buildNode(ctx, n, l.topology.Nodes[i], l.nodes) })
	}
	err := g.Wait()
	for _, n := range l.nodes {
		for _, p := range n.pods {
			l.pods[p.Name()] = p
		}
	}
	return err
}

// buildHost makes a machine that is not a node. The caller closes the result even if there is an error.
func (l *Lab) buildHost(name string, m machine, settings []netns.Setting) (*Host, error) {
	h, err := newHost(name, m.addrs(l.Stack()), settings)
	if err != nil {
		return nil, err
	}
	return h, h.apply(l.lanOps(m, l.nodes)...)
}

// lanOps returns the changes that attach a machine to the LAN and add its neighbour entries for the other machines.
func (l *Lab) lanOps(m machine, nodes []*Node) []link.Op {
	ops := m.attach(l.Stack(), l.underlay.NS)
	for _, other := range machines(nodes) {
		if other.host != m.host {
			ops = append(ops, other.neighbours(l.Stack())...)
		}
	}
	return ops
}

// newNode returns the node of a number. Its namespace does not exist yet.
func (l *Lab) newNode(number int) *Node {
	n := &Node{number: number, network: l.Topology().PodNetwork, pods: map[int]*Pod{}, taken: map[int]bool{}}
	n.addrs = n.lan().addrs(l.Stack())
	n.podCIDRs = each(l.Stack().Families(), func(f Family) netip.Prefix { return podCIDR(f, number) })
	return n
}

// buildNode makes a node, which gets neighbour entries for all nodes, and then its pods.
func (l *Lab) buildNode(ctx context.Context, n *Node, spec NodeSpec, all []*Node) error {
	var err error
	if n.NS, err = netns.New(spec.Name, l.settings.node...); err != nil {
		return err
	}
	ops := append(l.lanOps(n.lan(), all), l.network.prepare(n, l.Stack())...)
	if err := n.apply(ops...); err != nil {
		return err
	}
	if err := l.overlay.prepare(n, l.Stack()); err != nil {
		return err
	}
	ops = ops[:0]
	for _, peer := range all {
		if peer != n {
			ops = append(ops, l.overlay.toward(n, peer.number, l.Stack())...)
		}
	}
	if err := n.apply(ops...); err != nil {
		return err
	}
	if err := l.masquerade(n, all); err != nil {
		return err
	}
	return l.buildPods(ctx, n, spec.Pods)
}

// masquerade installs the rule for pod traffic that leaves the cluster. Only then do settings of conntrack exist.
func (l *Lab) masquerade(n *Node, all []*Node) error {
	var nodes []netip.Addr
	for _, peer := range all {
		nodes = append(nodes, peer.addrs...)
	}
	rule := link.Masquerade{Pods: n.podCIDRs, Cluster: l.ClusterCIDRs(), Nodes: nodes}
	if err := rule.Install(n.NS); err != nil {
		return err
	}
	return n.SetSysctls(l.settings.tracking...)
}

// buildPods makes the first pods of a node, with one request for all their ports.
func (l *Lab) buildPods(ctx context.Context, n *Node, specs []PodSpec) error {
	var pods []*Pod
	for i := range specs {
		pods = append(pods, l.newPod(n, firstPod+i))
	}
	var ports []link.Op
	for i, p := range pods {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%s: pod %s: %w", n.Name(), specs[i].Name, err)
		}
		n.pods[p.host] = p
		if err := l.buildPod(p, specs[i].Name, pods); err != nil {
			return err
		}
		ports = append(ports, l.network.port(p, l.Stack())...)
	}
	return n.apply(ports...)
}

// newPod returns the pod of a host number, which it takes. The pod's namespace does not exist yet.
func (l *Lab) newPod(n *Node, host int) *Pod {
	p := &Pod{node: n, host: host, serial: firstPod + n.podsMade, met: map[int]bool{}}
	n.podsMade++
	n.taken[host] = true
	p.addrs = each(l.Stack().Families(), func(f Family) netip.Addr { return podAddr(f, n.number, host) })
	return p
}

// buildPod makes the pod up to the node's end of its veth, with neighbour entries for the other pods of the node.
func (l *Lab) buildPod(p *Pod, name string, peers []*Pod) error {
	ns, err := netns.New(name, l.settings.pod...)
	if err != nil {
		return err
	}
	p.NS = ns
	ops := []link.Op{
		link.Up{Dev: link.Loopback},
		link.Veth{
			Dev: devNIC, MAC: podMAC(p.node.number, p.host), MTU: l.overlay.mtu(l.Stack()),
			Peer: link.Peer{Dev: p.port(), MAC: l.network.portMAC(p), NS: p.node.NS},
		},
		link.Quiet{Dev: devNIC},
		link.Up{Dev: devNIC},
	}
	if l.Stack() != IPv4 {
		ops = append(ops, linkLocal(devNIC, podMAC(p.node.number, p.host)))
	}
	ops = append(ops, l.network.pod(p, l.Stack())...)
	return p.apply(append(ops, l.meet(p, peers...)...)...)
}

// meet returns the neighbour entries that a pod lacks for others of its node. It keeps them when the others go, because
// the next pods with their addresses have the same MACs.
func (l *Lab) meet(p *Pod, peers ...*Pod) (ops []link.Op) {
	for _, peer := range peers {
		if peer != p && !p.met[peer.host] {
			p.met[peer.host] = true
			ops = append(ops, l.network.neighbours(peer, l.Stack())...)
		}
	}
	return ops
}

// ready waits until everything in the lab works.
func (l *Lab) ready(ctx context.Context) error {
	for _, n := range l.nodes {
		if err := n.allReady(ctx); err != nil {
			return err
		}
	}
	for _, h := range []*Host{l.router, l.client, l.underlay} {
		if err := h.ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

// allReady waits until the node and its pods work.
func (n *Node) allReady(ctx context.Context) error {
	for _, p := range n.podList() {
		if err := p.ready(ctx); err != nil {
			return err
		}
	}
	return n.ready(ctx)
}

// growDescriptorTable makes the table of descriptors large beforehand. In a process with threads, each time that the
// kernel doubles it costs an RCU grace period (4 to 11 ms).
var growDescriptorTable = sync.OnceFunc(func() {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return
	}
	const wanted = 4096 // enough for a lab of a thousand pods
	high, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, int(min(limit.Cur, wanted))-1)
	if err == nil {
		unix.Close(high)
	}
})
