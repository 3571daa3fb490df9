// SPDX-License-Identifier: Apache-2.0

package live

import (
	"cmp"
	"context"
	"encoding/json"
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
	JSON   bool // an Entry a line
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
	print := printEntry
	if args.JSON {
		print = func(w io.Writer, e Entry) error { return json.NewEncoder(w).Encode(e) }
	}
	names := l.names()
	for _, f := range flows {
		if err := print(call.Stdout, entryOf(f, "", names)); err != nil {
			return nil, err
		}
	}
	return nil, l.follow(ctx, events, func(e Entry) error { return print(call.Stdout, e) })
}

// follow prints changes until the context ends.
func (l *Lab) follow(ctx context.Context, events <-chan observe.FlowEvent, print func(Entry) error) error {
	for events != nil {
		select {
		case e, ok := <-events:
			if !ok {
				return nil
			}
			if err := print(entryOf(e.Flow, e.Change.String(), l.names())); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// Entry is an entry of connection tracking, for programs.
type Entry struct {
	Change string `json:"change,omitempty"` // "new", "update" or "destroy", for changes
	Proto  string `json:"proto"`
	// Original is the first packet as it came in, Reply the expected reply.
	Original Direction `json:"original"`
	Reply    Direction `json:"reply"`
	State    string    `json:"state,omitempty"` // of TCP
	Replied  bool      `json:"replied"`
	Assured  bool      `json:"assured"`
	SNAT     bool      `json:"snat"`
	DNAT     bool      `json:"dnat"`
	Mark     uint32    `json:"mark"`
	Zone     uint16    `json:"zone"`
	Timeout  float64   `json:"timeoutSeconds"` // how long the entry stays without further packets
	// Names are those of the addresses' machines, pods and Services, in the order in which they appear.
	Names []string `json:"names"`

	text string
}

// Direction is one direction of an Entry. An ICMP echo has its id as port of the source, and 256 times its type plus
// its code as port of the destination.
type Direction struct {
	Source      netip.AddrPort `json:"source"`
	Destination netip.AddrPort `json:"destination"`
}

func entryOf(f observe.Flow, change string, names map[netip.Addr]string) Entry {
	e := Entry{
		Change: change, Proto: f.Proto,
		Original: Direction{f.Orig.Src, f.Orig.Dst}, Reply: Direction{f.Reply.Src, f.Reply.Dst}, State: f.TCPState,
		Replied: f.Replied(), Assured: f.Assured(), SNAT: f.SNAT(), DNAT: f.DNAT(),
		Mark: f.Mark, Zone: f.Zone, Timeout: f.Timeout.Seconds(), Names: []string{}, text: f.String(),
	}
	for _, a := range []netip.AddrPort{f.Orig.Src, f.Orig.Dst, f.Reply.Src, f.Reply.Dst} {
		if name := names[a.Addr()]; name != "" && !slices.Contains(e.Names, name) {
			e.Names = append(e.Names, name)
		}
	}
	return e
}

// printEntry prints an entry, and the names of its addresses as a comment.
func printEntry(w io.Writer, e Entry) error {
	line := e.text
	if e.Change != "" {
		line = fmt.Sprintf("%-8s%s", e.Change, line)
	}
	if len(e.Names) > 0 {
		line += "  # " + strings.Join(e.Names, ", ")
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
