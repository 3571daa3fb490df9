// SPDX-License-Identifier: Apache-2.0

package live

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/viplab/viplab/internal/live/control"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/observe"
)

// Conntrack prints the connection tracking of a node.
const Conntrack = "conntrack" // ConntrackArgs, no result

// ConntrackArgs are the arguments of Conntrack.
type ConntrackArgs struct {
	Node   string
	Follow bool // also every change, until the request is cancelled
}

func (l *Lab) conntrack(ctx context.Context, call *control.Call) (any, error) {
	var args ConntrackArgs
	if err := call.Args(&args); err != nil {
		return nil, err
	}
	table := l.standing.Conntrack(args.Node)
	if table == nil {
		return nil, fmt.Errorf("%q is not a node", args.Node)
	}
	var events <-chan observe.FlowEvent
	if args.Follow {
		var err error
		if events, err = table.Events(ctx); err != nil {
			return nil, err
		}
	}
	flows, err := table.Flows(ctx, nil)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(flows, func(a, b observe.Flow) int { return cmp.Compare(a.String(), b.String()) })
	names := l.names()
	for _, f := range flows {
		if err := printFlow(call.Stdout, "", f, names); err != nil {
			return nil, err
		}
	}
	return nil, follow(ctx, call.Stdout, events, l)
}

// follow prints changes until the context ends.
func follow(ctx context.Context, w io.Writer, events <-chan observe.FlowEvent, l *Lab) error {
	for events != nil {
		select {
		case e, ok := <-events:
			if !ok {
				return nil
			}
			if err := printFlow(w, fmt.Sprintf("%-8s", e.Change), e.Flow, l.names()); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// printFlow prints an entry, and the names of its addresses as a comment.
func printFlow(w io.Writer, prefix string, f observe.Flow, names map[netip.Addr]string) error {
	var known []string
	for _, a := range []netip.AddrPort{f.Orig.Src, f.Orig.Dst, f.Reply.Src, f.Reply.Dst} {
		if name := names[a.Addr()]; name != "" && !slices.Contains(known, name) {
			known = append(known, name)
		}
	}
	line := prefix + f.String()
	if len(known) > 0 {
		line += "  # " + strings.Join(known, ", ")
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

// names maps addresses to the names of their machines, pods and Services.
func (l *Lab) names() map[netip.Addr]string {
	names := map[netip.Addr]string{}
	network := l.standing.Cluster().Lab()
	for _, s := range l.standing.Cluster().Store().Snapshot().Services {
		for _, text := range slices.Concat(s.Spec.ClusterIPs, s.Spec.ExternalIPs) {
			if a, err := netip.ParseAddr(text); err == nil {
				names[a] = "svc/" + store.KeyOf(s).String()
			}
		}
		for _, ingress := range s.Status.LoadBalancer.Ingress {
			if a, err := netip.ParseAddr(ingress.IP); err == nil {
				names[a] = "svc/" + store.KeyOf(s).String()
			}
		}
	}
	for _, p := range network.Pods() {
		for _, a := range p.Addrs() {
			names[a] = p.Name()
		}
	}
	for _, n := range network.Nodes() {
		addrs, _ := n.LocalAddrs() // a node without them is shown by its addresses
		for _, a := range addrs {
			if names[a] == "" { // IPVS gives nodes the addresses of Services
				names[a] = n.Name()
			}
		}
	}
	for _, a := range network.Client().Addrs() {
		names[a] = network.Client().Name()
	}
	for _, a := range network.Router().Addrs() {
		names[a] = network.Router().Name()
	}
	return names
}
