// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/viplab/viplab/internal/lab/link"
)

// errClosed is the error of every change to a closed lab.
var errClosed = errors.New("the lab is closed")

// AddPod makes a pod on a node, at the lowest free address, and returns when every path to and from it works. Several
// pods of a node can be made at once: only their connection to the node takes turns.
func (l *Lab) AddPod(ctx context.Context, node string, spec PodSpec) (*Pod, error) {
	l.change.RLock()
	defer l.change.RUnlock()
	n, err := l.claimPod(node, spec)
	if err != nil {
		return nil, err
	}
	p, err := l.addPod(ctx, n, spec)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		delete(l.names, spec.Name)
		return nil, err
	}
	l.pods[spec.Name] = p
	return p, nil
}

// claimPod finds the node and reserves the pod's name until the pod is made.
func (l *Lab) claimPod(node string, spec PodSpec) (*Node, error) {
	n := l.Node(node)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, fmt.Errorf("add pod %s: %w", spec.Name, errClosed)
	case n == nil:
		return nil, fmt.Errorf("add pod %s: no node %q", spec.Name, node)
	}
	if err := l.names.addPod(spec); err != nil {
		return nil, fmt.Errorf("%s%w", prefix("add pod ", spec.Name), err)
	}
	return n, nil
}

func (l *Lab) addPod(ctx context.Context, n *Node, spec PodSpec) (*Pod, error) {
	p, err := l.claimAddress(n)
	if err != nil {
		return nil, fmt.Errorf("%s: add pod %s: %w", n.Name(), spec.Name, err)
	}
	if err := l.buildPod(p, spec.Name, nil); err != nil {
		return nil, errors.Join(err, n.discard(p))
	}
	ready, err := l.connectPod(p)
	if err == nil {
		err = ready(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, l.disconnectPod(p), n.discard(p))
	}
	return p, nil
}

// claimAddress returns a pod with the lowest free address of the node.
func (l *Lab) claimAddress(n *Node) (*Pod, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	host := firstPod
	for n.taken[host] {
		host++
	}
	if host > lastPod {
		return nil, fmt.Errorf("all %d addresses are taken", lastPod-firstPod+1)
	}
	return l.newPod(n, host), nil
}

// connectPod makes a new pod, the other pods of its node and the node know each other. ready waits until packets pass.
func (l *Lab) connectPod(p *Pod) (ready func(context.Context) error, err error) {
	n := p.node
	n.mu.Lock()
	defer n.mu.Unlock()
	peers := n.podList()
	err = errors.Join(p.apply(l.meet(p, peers...)...), n.apply(l.network.port(p, l.Stack())...))
	for _, peer := range peers {
		if err == nil {
			err = peer.apply(l.meet(peer, p)...)
		}
	}
	n.pods[p.host] = p
	inPod, onNode := p.effect(), n.effect()
	return func(ctx context.Context) error { return errors.Join(inPod(ctx), onNode(ctx)) }, err
}

// RemovePod removes a pod, even if programs still run in it. No packet reaches or leaves it afterwards. The kernel
// deletes its namespace later, in a batch.
func (l *Lab) RemovePod(name string) error {
	l.change.RLock()
	defer l.change.RUnlock()
	l.mu.Lock()
	p := l.pods[name]
	delete(l.pods, name)
	l.mu.Unlock()
	if p == nil {
		return fmt.Errorf("remove pod %s: no such pod", name)
	}
	err := errors.Join(l.disconnectPod(p), p.node.retire(p))
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.names, name)
	return err
}

// disconnectPod undoes connectPod, except that other pods keep their neighbour entries, and sets the pod's end of its
// link down.
func (l *Lab) disconnectPod(p *Pod) error {
	n := p.node
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pods, p.host)
	return errors.Join(p.apply(link.Down{Dev: devNIC}), n.apply(l.network.unport(p, l.Stack())...))
}

// manyRetired is how many removed pods are closed in one batch. Each takes some 300 KiB until then. A run of the
// catalogue removes some 240 pods from each of three nodes, so no batch falls into it.
const manyRetired = 512

// retire frees the address of a disconnected pod, and keeps the pod until the node goes or the batch is full. For every
// link of a node that goes down, the kernel searches the conntrack table of all namespaces for 2 to 10 ms
// (nf_nat_masq_schedule), unless the node goes too or 16 searches are waiting. Deleting namespaces delays every change
// of any network.
func (n *Node) retire(p *Pod) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.taken, p.host)
	n.retired = append(n.retired, p)
	if len(n.retired) < manyRetired {
		return nil
	}
	return n.closeRetired()
}

// discard closes a pod that could not be made, and frees its address.
func (n *Node) discard(p *Pod) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.taken, p.host)
	return p.close()
}

func (n *Node) closeRetired() error {
	errs := each(n.retired, (*Pod).close)
	n.retired = nil
	return errors.Join(errs...)
}

func removals(ops []link.Op) []link.Op { return each(ops, link.Remove) }

// each returns f of every element.
func each[A, B any](in []A, f func(A) B) []B {
	out := make([]B, len(in))
	for i, a := range in {
		out[i] = f(a)
	}
	return out
}

// podList returns the node's pods, ordered by address. The caller holds n.mu or is the only user of n.
func (n *Node) podList() []*Pod {
	return each(slices.Sorted(maps.Keys(n.pods)), func(host int) *Pod { return n.pods[host] })
}

// AddNode makes a node with its pods, at the lowest free number, and configures all other machines for it.
func (l *Lab) AddNode(ctx context.Context, spec NodeSpec) (*Node, error) {
	l.change.Lock()
	defer l.change.Unlock()
	if l.closed {
		return nil, fmt.Errorf("add node %s: %w", spec.Name, errClosed)
	}
	names := maps.Clone(l.names)
	if err := errors.Join(names.addNode(spec)...); err != nil {
		return nil, fmt.Errorf("add %w", err)
	}
	at := 0
	for at < len(l.nodes) && l.nodes[at].number == at+1 {
		at++
	}
	if at == maxNodes {
		return nil, fmt.Errorf("add node %s: the LAN has addresses for %d", spec.Name, maxNodes)
	}
	n := l.newNode(at + 1)
	all := slices.Insert(slices.Clone(l.nodes), at, n)
	err := l.buildNode(ctx, n, spec, all)
	if err == nil {
		err = l.connectNode(ctx, n)
	}
	if err != nil {
		return nil, errors.Join(err, l.disconnectNode(n), n.close())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nodes, l.names = all, names
	for _, p := range n.pods {
		l.pods[p.Name()] = p
	}
	return n, nil
}

// connectNode configures all other machines for a new node: the port in the switch, neighbours, routes, exemptions.
func (l *Lab) connectNode(ctx context.Context, n *Node) error {
	port := link.Port{Dev: switchPort(n.lan().host), Bridge: devSwitch}
	if err := l.underlay.apply(port); err != nil {
		return err
	}
	for _, h := range []*Host{l.router, l.client} {
		if err := h.apply(n.lan().neighbours(l.Stack())...); err != nil {
			return err
		}
	}
	for _, peer := range l.nodes {
		err := errors.Join(peer.apply(l.peerOps(peer, n)...), link.ExemptFromMasquerade(peer.NS, n.addrs...))
		if err != nil {
			return err
		}
	}
	return errors.Join(n.allReady(ctx), l.underlay.ready(ctx))
}

// RemoveNode removes a node with its pods as if its power was cut, and removes it from the configuration of all others.
func (l *Lab) RemoveNode(name string) error {
	l.change.Lock()
	defer l.change.Unlock()
	at := slices.IndexFunc(l.nodes, func(n *Node) bool { return n.Name() == name })
	if at < 0 || l.closed {
		return fmt.Errorf("remove node %s: no such node", name)
	}
	n := l.nodes[at]
	l.mu.Lock()
	l.nodes = slices.Delete(slices.Clone(l.nodes), at, at+1)
	delete(l.names, name)
	for _, p := range n.pods {
		delete(l.names, p.Name())
		delete(l.pods, p.Name())
	}
	l.mu.Unlock()
	return errors.Join(l.disconnectNode(n), n.close())
}

// disconnectNode undoes connectNode, and deletes the node's link. Its namespace lives on while a process runs in it.
func (l *Lab) disconnectNode(n *Node) error {
	l.underlay.awaited = nil // left over by a node that could not be connected
	errs := []error{l.underlay.apply(link.Delete{Dev: switchPort(n.lan().host)})}
	for _, h := range []*Host{l.router, l.client} {
		errs = append(errs, h.apply(removals(n.lan().neighbours(l.Stack()))...))
	}
	for _, peer := range l.nodes {
		if peer != n {
			errs = append(errs, peer.apply(removals(l.peerOps(peer, n))...),
				link.EndMasqueradeExemption(peer.NS, n.addrs...))
		}
	}
	return errors.Join(errs...)
}

// peerOps returns the changes that make another node known to a node.
func (l *Lab) peerOps(n, peer *Node) []link.Op {
	return append(peer.lan().neighbours(l.Stack()), l.overlay.toward(n, peer.number, l.Stack())...)
}
