// SPDX-License-Identifier: Apache-2.0

package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/viplab/viplab/internal/live/control"
	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/traffic"
)

// Probe sends one request.
const Probe = "probe" // ProbeArgs, Probed

// ProbeArgs are the arguments of Probe.
type ProbeArgs struct {
	From  Place
	To    string // see Lab.target
	Proto string // "tcp" or "udp"; empty means what the target says, else tcp
	IP    string // "4" or "6"; empty means the first family that the lab has
}

// Limits of a probe. Silence is proved by fences; patience is for programs that answer late.
const (
	probeLimit    = 10 * time.Second
	probePatience = time.Second
)

func (l *Lab) probe(ctx context.Context, call *control.Call) (any, error) {
	var args ProbeArgs
	if err := call.Args(&args); err != nil {
		return nil, err
	}
	p, to, err := l.probeOf(args)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, machine.Limit(probeLimit))
	defer cancel()
	if err := l.standing.Settle(ctx); err != nil {
		fmt.Fprintf(call.Stderr, "the programs on the nodes have not converged: %v\n", err)
	}
	witnesses, err := l.witnesses(p.From)
	if err != nil {
		return nil, err
	}
	answer := p.Do(ctx)
	seen, err := witnesses.end()
	if err := errors.Join(err, answer.Fault); err != nil {
		return nil, err
	}
	path, err := l.path(ctx, p, answer.Source, seen)
	if err != nil {
		return nil, err
	}
	return probed(p, to, answer, path, l.names()), nil
}

// probeOf returns the probe that the arguments describe.
func (l *Lab) probeOf(args ProbeArgs) (p traffic.Probe, to *target, err error) {
	from, err := l.find(args.From)
	if err != nil {
		return p, nil, err
	}
	if from.host == nil {
		return p, nil, fmt.Errorf("%s cannot send", args.From.Name)
	}
	if to, err = l.target(args.To, args.From.Namespace); err != nil {
		return p, nil, err
	}
	network := l.standing.Cluster().Lab()
	family := network.Stack().Families()[0]
	switch {
	case args.IP != "":
		stack, err := lab.ParseStack(args.IP)
		if err != nil {
			return p, nil, err
		}
		family = stack.Families()[0]
	case len(to.addrs) == 1:
		family = lab.FamilyOf(to.addrs[0])
	}
	proto := cmp.Or(args.Proto, to.proto, "tcp")
	p = traffic.Probe{
		From: from.host.NS, Proto: proto, Patience: probePatience,
		IfAccepted: proto == "tcp", // fences do not wait for the programs that answer datagrams
	}
	if p.To, err = to.addr(family); err != nil {
		return p, nil, err
	}
	for _, n := range network.Nodes() {
		p.Fences = append(p.Fences, n.Addr(family))
	}
	if pod := network.Pod(from.host.Name()); pod != nil {
		p.FencesFrom = pod.Node().NS // policies may drop the pod's own echoes
	}
	return p, to, nil
}

// witness is a capture at a machine.
type witness struct {
	ns *netns.NS
	*observe.Capture
}

type witnesses []witness

// witnesses starts a capture on every node, on the router and at the sender.
func (l *Lab) witnesses(from *netns.NS) (witnesses, error) {
	network := l.standing.Cluster().Lab()
	spaces := []*netns.NS{from}
	for _, n := range network.Nodes() {
		spaces = append(spaces, n.NS)
	}
	spaces = append(spaces, network.Router().NS)
	var out witnesses
	for i, ns := range spaces {
		if slices.Index(spaces, ns) != i {
			continue // the sender is a node
		}
		c, err := observe.StartCapture(ns)
		if err != nil {
			_, endErr := out.end()
			return nil, errors.Join(err, endErr)
		}
		out = append(out, witness{ns, c})
	}
	return out, nil
}

// sighting is a packet at a device.
type sighting struct {
	place string
	frame observe.Frame
	*observe.Packet
}

// end ends the captures and returns all IP packets by time.
func (w witnesses) end() ([]sighting, error) {
	var out []sighting
	var errs []error
	for _, c := range w {
		for _, f := range c.Packets() {
			if p, err := observe.Decode(f); err == nil {
				out = append(out, sighting{c.ns.Name(), f, p})
			}
		}
		errs = append(errs, c.Close())
	}
	slices.SortStableFunc(out, func(a, b sighting) int { return a.frame.At.Compare(b.frame.At) })
	return out, errors.Join(errs...)
}

// path returns where the first packet of a probe was seen, with the tuples that the nodes' NAT gave it.
func (l *Lab) path(ctx context.Context, p traffic.Probe, source netip.AddrPort, seen []sighting) ([]sighting, error) {
	tuples := []observe.Tuple{{Src: source, Dst: p.To}}
	flows, err := l.flows(ctx, p.Proto)
	if err != nil {
		return nil, err
	}
	for known := 0; known < len(tuples); known++ {
		for _, f := range flows {
			after := observe.Tuple{Src: f.Reply.Dst, Dst: f.Reply.Src}
			if f.Orig == tuples[known] && !slices.Contains(tuples, after) {
				tuples = append(tuples, after)
			}
		}
	}
	var path []sighting
	type passage struct {
		place, device string
		direction     observe.Direction
	}
	passed := map[passage]bool{} // later packets take the same path
	for _, s := range seen {
		inner := s.Innermost()
		at := passage{s.place, s.frame.Device, s.frame.Direction}
		if inner.Proto != p.Proto || inner.Flags != "SYN" && p.Proto == "tcp" || passed[at] ||
			!slices.Contains(tuples, observe.Tuple{Src: inner.Src, Dst: inner.Dst}) {
			continue
		}
		passed[at] = true
		path = append(path, s)
	}
	inOrder(path, p.From.Name())
	return path, nil
}

// inOrder sorts a path by machines: the sender first, then by the hops that the packet still had when it arrived. Time
// orders only what one machine has seen, because the kernel stamps packets of a sender late.
func inOrder(path []sighting, sender string) {
	arrived := map[string]uint8{}
	for _, s := range path {
		arrived[s.place] = max(arrived[s.place], s.Innermost().TTL)
	}
	rank := func(s sighting) int {
		if s.place == sender {
			return -1 << 8
		}
		return -int(arrived[s.place])
	}
	slices.SortStableFunc(path, func(a, b sighting) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.place, b.place))
	})
}

// flows returns the flows of a protocol of all nodes.
func (l *Lab) flows(ctx context.Context, proto string) ([]observe.Flow, error) {
	var all []observe.Flow
	for _, n := range l.standing.Cluster().Lab().Nodes() {
		flows, err := l.standing.Conntrack(n.Name()).Flows(ctx, func(f observe.Flow) bool { return f.Proto == proto })
		if err != nil {
			return nil, err
		}
		all = append(all, flows...)
	}
	return all, nil
}
