// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/proxiers/events"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/proxiers/model"
)

// portal is a port of a Service on a node: its relays and the NodePorts that it holds.
type portal struct {
	// cluster relays to the endpoints for traffic under policy Cluster, local to those for traffic under policy Local. A
	// relay that was never needed is nil.
	cluster, local *relay
	// taken says why a NodePort is not held, in the words of the last message about it.
	taken string
}

// portals are all portals of a node and family.
type portals struct {
	sockets sockets
	at      netip.Addr
	log     *slog.Logger
	events  *events.Recorder
	open    map[model.PortID]*portal
	claims  claims
	// former are the ports of relays that rules of a former life lead to, by the comment of those rules.
	former map[string]uint16
}

// relayed says whether a relay can carry the protocol.
func relayed(p corev1.Protocol) bool { return p == corev1.ProtocolTCP || p == corev1.ProtocolUDP }

// prepare opens what rules for the port are going to lead to. What cannot be opened is left out: errors are about the
// relays, and taken NodePorts are reported to people.
func (a *portals) prepare(ctx context.Context, p *model.Port, nodePorts []netip.Addr) (ways, []claim, error) {
	at := a.open[p.ID]
	if at == nil {
		at = &portal{}
		a.open[p.ID] = at
	}
	var w ways
	var errs [2]error
	w.cluster, errs[0] = a.way(ctx, &at.cluster, p, clusterWay(p.ID), clusterEndpoints(p))
	w.local, errs[1] = a.way(ctx, &at.local, p, localWay(p.ID), localEndpoints(p))
	return w, a.claim(ctx, at, p, nodePorts), errors.Join(errs[:]...)
}

// way opens a relay to the endpoints, if there are any, and says where it lets clients in.
func (a *portals) way(ctx context.Context, r **relay, p *model.Port, name string, to []model.Endpoint) (netip.AddrPort,
	error) {
	if *r == nil {
		if len(to) == 0 {
			return netip.AddrPort{}, nil
		}
		*r = newRelay(a.sockets, a.at, p.ID.Protocol, a.log.With("relay", name))
		(*r).port = a.former[name]
	}
	(*r).balancer.set(addrsOf(to), p.Affinity)
	if len(to) == 0 {
		return netip.AddrPort{}, nil
	}
	if err := (*r).open(ctx); err != nil {
		return netip.AddrPort{}, fmt.Errorf("%s: %w", name, err)
	}
	return (*r).addr(), nil
}

// claim holds the NodePort on the addresses of the node that serve NodePorts, nil meaning all, and returns what is
// held.
func (a *portals) claim(ctx context.Context, at *portal, p *model.Port, addrs []netip.Addr) []claim {
	var held []claim
	taken := ""
	for _, c := range claimsOf(p, addrs, a.sockets.ip) {
		if err := a.claims.hold(ctx, c); err != nil {
			taken = err.Error()
			continue
		}
		held = append(held, c)
	}
	if taken != at.taken && taken != "" {
		a.events.Warn(p.ID.Namespace, p.ID.Name, "NodePortTaken",
			fmt.Sprintf("the NodePort %d (%s) of port %q is not served "+
				"on this node: %s. Stop the process that has it, or give the Service another one", p.NodePort, p.ID.Protocol,
				p.ID.Port, taken))
	}
	at.taken = taken
	return held
}

// claimsOf are the claims of a port on a node.
func claimsOf(p *model.Port, addrs []netip.Addr, f lab.Family) []claim {
	if p.NodePort == 0 || !relayed(p.ID.Protocol) {
		return nil
	}
	switch {
	case addrs != nil:
	case f == lab.V6:
		addrs = []netip.Addr{netip.IPv6Unspecified()}
	default:
		addrs = []netip.Addr{netip.IPv4Unspecified()}
	}
	var all []claim
	for _, a := range addrs {
		all = append(all, claim{p.ID.Protocol, netip.AddrPortFrom(a, p.NodePort)})
	}
	return all
}

// complete says whether all that the port needs is there.
func (a *portals) complete(id model.PortID) bool {
	at := a.open[id]
	return at.taken == "" && !at.cluster.waits() && !at.local.waits()
}

// waits says whether a relay could not be opened.
func (r *relay) waits() bool { return r != nil && r.door == nil && r.balancer.size() > 0 }

// settle closes what no rule leads to any more, and ends UDP sessions with endpoints that have vanished. TCP
// connections live on as long as both of their ends do, and so do UDP sessions: the door that these need is closed with
// the next change that finds it unused.
func (a *portals) settle(p *model.Port) {
	at := a.open[p.ID]
	for _, r := range []*relay{at.cluster, at.local} {
		if r == nil || r.door == nil {
			continue
		}
		if needed := r.door.forget(p.Serving); !needed && r.balancer.size() == 0 {
			r.shut()
		}
	}
}

// close ends all that there is of a port.
func (a *portals) close(id model.PortID) {
	at := a.open[id]
	if at == nil {
		return
	}
	delete(a.open, id)
	for _, r := range []*relay{at.cluster, at.local} {
		if r != nil {
			r.close()
		}
	}
}

// doors are where relays of a port let clients in.
func (a *portals) doors(id model.PortID) []netip.AddrPort {
	at := a.open[id]
	if at == nil {
		return nil
	}
	var out []netip.AddrPort
	for _, r := range []*relay{at.cluster, at.local} {
		if r != nil && r.door != nil {
			out = append(out, r.addr())
		}
	}
	return out
}

// formerPorts reads from rules where relays of a former life were.
func formerPorts(nat *xtables.Saved, relays netip.Addr) map[string]uint16 {
	ports := map[string]uint16{}
	for _, name := range chainNames {
		for _, r := range nat.Chains[name] {
			to, err := netip.ParseAddrPort(r.Option("--to-destination"))
			if err == nil && to.Addr() == relays {
				ports[r.Option("--comment")] = to.Port()
			}
		}
	}
	return ports
}

// clusterEndpoints are the endpoints of the relay for policy Cluster. Traffic of the cluster itself needs it for the
// other frontends whatever their policy is.
func clusterEndpoints(p *model.Port) []model.Endpoint {
	if p.InternalLocal && !p.External() {
		return nil
	}
	return p.Cluster
}

func localEndpoints(p *model.Port) []model.Endpoint {
	if p.InternalLocal || p.ExternalLocal && p.External() {
		return p.Local
	}
	return nil
}

func addrsOf(endpoints []model.Endpoint) []netip.AddrPort {
	var out []netip.AddrPort
	for _, e := range endpoints {
		out = append(out, e.Addr)
	}
	return out
}
