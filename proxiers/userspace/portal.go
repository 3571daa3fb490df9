// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/internal/proxiers/nodeaddr"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/proxiers/model"
)

// portal is a port of a Service on a node: its relays and the NodePorts that it holds.
type portal struct {
	// cluster relays to the endpoints for traffic under policy Cluster, local to those for traffic under policy Local.
	// A relay that was never needed is nil.
	cluster, local *relay
	// taken is the last error about a NodePort that could not be bound.
	taken string
	servicePort
}

// servicePort identifies a port of a Service by what clients see of it: not by its name.
type servicePort struct {
	namespace, service string
	protocol           corev1.Protocol
	number             uint16
}

func servicePortOf(p *model.Port) servicePort {
	return servicePort{p.ID.Namespace, p.ID.Name, p.ID.Protocol, p.Number}
}

// relays returns the relays that exist. A nil portal has none.
func (at *portal) relays() []*relay {
	if at == nil {
		return nil
	}
	return slices.DeleteFunc([]*relay{at.cluster, at.local}, func(r *relay) bool { return r == nil })
}

// portals are all portals of a node and family.
type portals struct {
	sockets sockets
	at      netip.Addr
	log     *slog.Logger
	events  *kit.Recorder
	open    map[model.PortID]*portal
	// named are the ports of the open portals.
	named  map[servicePort]model.PortID
	claims claims
	// former are the ports of an earlier instance's relays, by the comment of their rules.
	former map[string]uint16
}

// relayed reports whether a relay can carry the protocol.
func relayed(p corev1.Protocol) bool { return p == corev1.ProtocolTCP || p == corev1.ProtocolUDP }

// prepare opens the relays and NodePorts that the rules of the port lead to, and returns those that are open. An error
// is about the relays; a taken NodePort becomes an Event.
func (a *portals) prepare(ctx context.Context, p *model.Port, nodePorts []netip.Addr) (ways, []claim, error) {
	at := a.open[p.ID]
	if at == nil {
		at = &portal{}
		a.open[p.ID] = at
	}
	a.unname(p.ID, at)
	at.servicePort = servicePortOf(p)
	a.named[at.servicePort] = p.ID
	cluster, local := p.Used()
	toCluster, err := a.way(ctx, &at.cluster, p, clusterWay(p.ID), cluster)
	toLocal, err2 := a.way(ctx, &at.local, p, localWay(p.ID), local)
	return ways{toCluster, toLocal}, a.claim(ctx, at, p, nodePorts), errors.Join(err, err2)
}

// rename keeps the portals of ports that have only got another name, and with them their connections.
func (a *portals) rename(s *model.Service) {
	present := map[model.PortID]bool{}
	for _, p := range s.Ports {
		present[p.ID] = true
	}
	for _, p := range s.Ports {
		former := a.named[servicePortOf(p)]
		if at := a.open[former]; at != nil && a.open[p.ID] == nil && !present[former] {
			a.open[p.ID] = at
			delete(a.open, former)
		}
	}
}

// unname forgets the name of a portal.
func (a *portals) unname(id model.PortID, at *portal) {
	if a.named[at.servicePort] == id {
		delete(a.named, at.servicePort)
	}
}

// way opens a relay to the endpoints, if there are any, and returns its address.
func (a *portals) way(ctx context.Context, r **relay, p *model.Port, name string,
	to []model.Endpoint) (netip.AddrPort, error) {
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

// claim holds the NodePort on the addresses that serve NodePorts, nil meaning all, and returns the held claims.
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
			fmt.Sprintf("the NodePort %d (%s) of port %q is not served on this node: %s. "+
				"Stop the process that has it, or give the Service another one",
				p.NodePort, p.ID.Protocol, p.ID.Port, taken))
	}
	at.taken = taken
	return held
}

// claimsOf returns the claims of a port on a node.
func claimsOf(p *model.Port, addrs []netip.Addr, f lab.Family) []claim {
	if p.NodePort == 0 || !relayed(p.ID.Protocol) {
		return nil
	}
	if addrs == nil {
		addrs = []netip.Addr{nodeaddr.Unspecified(f)}
	}
	var all []claim
	for _, a := range addrs {
		all = append(all, claim{p.ID.Protocol, netip.AddrPortFrom(a, p.NodePort)})
	}
	return all
}

// complete reports whether the port has its NodePorts and all relays that it needs.
func (a *portals) complete(id model.PortID) bool {
	at := a.open[id]
	return at.taken == "" && !slices.ContainsFunc(at.relays(), func(r *relay) bool {
		return r.listener == nil && r.balancer.size() > 0
	})
}

// settle closes unused listeners, and ends UDP sessions with endpoints that no longer exist. TCP connections continue.
// UDP sessions with existing endpoints continue, too, and a later call closes the listener that they need.
func (a *portals) settle(p *model.Port) {
	for _, r := range a.open[p.ID].relays() {
		if r.listener == nil {
			continue
		}
		if needed := r.listener.forget(p.Serving); !needed && r.balancer.size() == 0 {
			r.shut()
		}
	}
}

// close closes the relays and NodePorts of a port.
func (a *portals) close(id model.PortID) {
	at := a.open[id]
	if at == nil {
		return
	}
	for _, r := range at.relays() {
		r.close()
	}
	a.unname(id, at)
	delete(a.open, id)
}

// openAddrs returns the addresses of the open relays of a port.
func (a *portals) openAddrs(id model.PortID) []netip.AddrPort {
	var out []netip.AddrPort
	for _, r := range a.open[id].relays() {
		if r.listener != nil {
			out = append(out, r.addr())
		}
	}
	return out
}

// formerPorts reads the ports of the relays of an earlier instance from its rules.
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

func addrsOf(endpoints []model.Endpoint) []netip.AddrPort {
	var out []netip.AddrPort
	for _, e := range endpoints {
		out = append(out, e.Addr)
	}
	return out
}
