// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/lab/sctp"
	"github.com/viplab/viplab/internal/suite/services/oracle"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/suite/spec"
)

// sender is a host that asks.
type sender struct {
	oracle.Sender
	name   string
	source spec.Target // zero: the host's own choice
	kind   string      // "pod", "node" or "client"
}

// door is an address and port to ask.
type door struct {
	addr netip.AddrPort
	to   spec.Target
	kind string // "clusterip", "nodeport", "balancer", "external" or "elsewhere"
	via  string // the node to which an outside client's packet comes
	// protocol is that of the Service's port.
	protocol corev1.Protocol
	service  string
	local    bool // the Service's externalTrafficPolicy is Local, and the address is no ClusterIP
}

// question is a question with its answer.
type question struct {
	oracle.Question
	from   sender
	to     door
	family lab.Family
	answer oracle.Answer
	// servers are the names of the endpoints' pods, in the order of the answer.
	servers []string
}

// senders returns every host that can ask over a family.
func (p *player) senders(w spec.World, f lab.Family) []sender {
	var all []sender
	for _, pod := range p.pods(w) {
		all = append(all, sender{name: pod, kind: "pod", Sender: oracle.Sender{
			Addr: w.Lab().Pod(w.Namespace() + "/" + pod).Addr(f), Pod: true,
			Node: w.Lab().Pod(w.Namespace() + "/" + pod).Node().Name(),
		}})
	}
	for _, n := range w.Lab().Nodes() {
		all = append(all, sender{name: n.Name(), kind: "node", Sender: oracle.Sender{Addr: n.Addr(f), Node: n.Name()}})
	}
	own := w.Lab().Client()
	all = append(all, sender{name: "client", kind: "client", Sender: oracle.Sender{Addr: own.Addr(f)}})
	for _, a := range own.Addrs() {
		if lab.FamilyOf(a) == f && a != own.Addr(f) {
			all = append(all, sender{name: "client", kind: "client", source: literal(netip.AddrPortFrom(a, 0)),
				Sender: oracle.Sender{Addr: a}})
			break
		}
	}
	return all
}

// pods returns the names of the case's pods that run.
func (p *player) pods(w spec.World) []string {
	var names []string
	for _, pod := range w.Lab().Pods() {
		if name, ok := strings.CutPrefix(pod.Name(), w.Namespace()+"/"); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// literal returns a target that is written out.
func literal(a netip.AddrPort) spec.Target {
	if a.Addr().Is4() {
		return spec.AddrAt(a.Addr().String(), "", a.Port())
	}
	return spec.AddrAt("", a.Addr().String(), a.Port())
}

// doors returns every address and port of the Services in a family, and others beside them.
func (p *player) doors(w spec.World, services []*corev1.Service, f lab.Family) []door {
	var all []door
	for _, svc := range services {
		var addrs []door
		at := func(kind, text, via string) {
			if a, err := netip.ParseAddr(text); err == nil && lab.FamilyOf(a) == f {
				addrs = append(addrs, door{kind: kind, addr: netip.AddrPortFrom(a, 0), via: via})
			}
		}
		for _, ip := range svc.Spec.ClusterIPs {
			at("clusterip", ip, "")
		}
		for _, ip := range svc.Spec.ExternalIPs {
			at("external", ip, p.viaOf(ip))
		}
		for _, in := range svc.Status.LoadBalancer.Ingress {
			at("balancer", in.IP, p.viaOf(in.IP))
		}
		for i, port := range svc.Spec.Ports {
			if port.Protocol == corev1.ProtocolSCTP && (!w.Features()[spec.SCTP] || sctp.Available() != nil) {
				continue
			}
			d := door{service: svc.Name, protocol: port.Protocol}
			for _, a := range addrs {
				d.kind, d.via, d.addr = a.kind, a.via, netip.AddrPortFrom(a.addr.Addr(), uint16(port.Port))
				if d.to = literal(d.addr); d.kind == "clusterip" {
					d.to = spec.ClusterIPOf(svc.Name, d.addr.Port())
				}
				d.local = isLocal(svc) && d.kind != "clusterip"
				all = append(all, d)
				if i == 0 { // a port that the Service has not
					d.kind, d.local, d.addr = "elsewhere", false, netip.AddrPortFrom(a.addr.Addr(), 7)
					d.to = literal(d.addr)
					all = append(all, d)
				}
			}
			for _, n := range w.Lab().Nodes() {
				if port.NodePort != 0 {
					d.kind, d.via, d.local = "nodeport", n.Name(), isLocal(svc)
					d.addr = netip.AddrPortFrom(n.Addr(f), uint16(port.NodePort))
					d.to = spec.NodePortAt(n.Name(), svc.Name, uint16(port.Port))
					all = append(all, d)
				}
			}
		}
	}
	return all
}

// viaOf returns the node that the outside client sends a virtual address to.
func (p *player) viaOf(ip string) string {
	for _, name := range p.c.virtualNames() {
		for _, a := range p.addresses(name) {
			if a.String() == ip {
				return via(name)
			}
		}
	}
	return ""
}

// ask returns the answered questions of a state, without those that the API leaves open and those whose endpoints are
// not all known.
func (p *player) ask(w spec.World, state *oracle.State) []question {
	var all []question
	for _, q := range p.questions(w, state) {
		if p.complete(w, &q) {
			all = append(all, q)
		}
	}
	return all
}

// questions returns all questions of a state with the oracle's answers.
func (p *player) questions(w spec.World, state *oracle.State) []question {
	var all []question
	for _, f := range p.families {
		doors := p.doors(w, state.Services, f)
		for _, gone := range p.gone {
			if lab.FamilyOf(gone.addr.Addr()) == f && !slices.ContainsFunc(doors, gone.same) {
				gone.kind, gone.local, gone.to = "gone", false, literal(gone.addr)
				doors = append(doors, gone)
			}
		}
		p.remember(doors)
		for _, from := range p.senders(w, f) {
			for _, to := range doors {
				q := question{from: from, to: to, family: f, Question: oracle.Question{
					From: from.Sender, To: to.addr, Protocol: to.protocol, Via: to.via,
				}}
				q.answer = state.Ask(q.Question)
				p.policed.judge(&q)
				if to.protocol == corev1.ProtocolSCTP {
					q.answer = withoutRefusals(q.answer)
				}
				all = append(all, q)
			}
		}
	}
	return all
}

// withoutRefusals returns an answer that accepts silence and refusals alike. A row over SCTP does not distinguish them
// (spec.Row.Proto).
func withoutRefusals(a oracle.Answer) oracle.Answer {
	switch a.Verdict {
	case oracle.Refused, oracle.Dropped, oracle.DroppedOrRefused:
		a.Verdict = oracle.NotServed
	}
	return a
}

func isLocal(s *corev1.Service) bool {
	return s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

func (d door) same(o door) bool { return d.addr == o.addr && d.protocol == o.protocol }

// remember keeps doors, to ask them when they are gone.
func (p *player) remember(doors []door) {
	for _, d := range doors {
		if d.kind != "elsewhere" && d.kind != "gone" && !slices.ContainsFunc(p.gone, d.same) {
			p.gone = append(p.gone, d)
		}
	}
}

// complete finds the servers of a question. It returns false if the question tells nothing.
func (p *player) complete(w spec.World, q *question) bool {
	p.playing.Coverage.addAnswer(q.answer)
	if q.answer.Verdict == oracle.Open || !p.concerns(w, q) {
		return false
	}
	// What the router says of ports that the outside client asks elsewhere is not the proxier's.
	var known bool
	q.servers, known = p.servers(w, q.answer.Endpoints, q.to.protocol)
	if q.answer.Verdict == oracle.MayBeServed && len(q.servers) == 0 {
		return false
	}
	return known
}

// servers returns the names of the pods with these addresses, and whether all of them are known, and listen.
func (p *player) servers(w spec.World, endpoints []netip.AddrPort, protocol corev1.Protocol) ([]string, bool) {
	var names []string
	for _, e := range endpoints {
		found := false
		for _, pod := range w.Lab().Pods() {
			name, own := strings.CutPrefix(pod.Name(), w.Namespace()+"/")
			if own && slices.Contains(pod.Addrs(), e.Addr()) && listens(find(p.now.Pods, name), e.Port(), protocol) {
				names, found = append(names, name), true
			}
		}
		if !found {
			return nil, false
		}
	}
	return names, true
}

// listens reports whether a pod, which may be nil, has a server on the port.
func listens(pod *corev1.Pod, port uint16, protocol corev1.Protocol) bool {
	return pod != nil && slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool {
			return p.ContainerPort == int32(port) && cmp.Or(p.Protocol, corev1.ProtocolTCP) == protocol
		})
	})
}

// needed are the features without which a rule, or an address, is not asked.
var needed = map[string]spec.Feature{
	"internal-local": spec.ITPLocal, "internal-local-nobody": spec.ITPLocal, "external-local": spec.ETPLocal,
	"external-local-nobody": spec.ETPLocal, "external-local-nowhere": spec.ETPLocal,
	"external-local-inside": spec.ETPLocal, "nodeport-local-inside": spec.ETPLocal,
	"terminating": spec.TerminatingFallback, "affinity": spec.SessionAffinity,
	"clusterip": spec.ClusterIP, "nodeport": spec.NodePort, "balancer": spec.LoadBalancer, "external": spec.ExternalIPs,
}

// concerns reports whether the proxier claims what a question is about.
func (p *player) concerns(w spec.World, q *question) bool {
	names := []string{q.to.kind}
	for _, r := range q.answer.Rules {
		names = append(names, r.Name)
	}
	return !slices.ContainsFunc(names, func(n string) bool { return needed[n] != "" && !w.Features()[needed[n]] })
}

// router returns the node that routes a question's packets to an endpoint.
func (q *question) router() string {
	if q.to.kind == "nodeport" {
		return q.to.via
	}
	return cmp.Or(q.from.Node, q.to.via)
}

// class describes what a question tells. Questions of one class differ in the sender alone, so that one of them stands
// for all.
func (q *question) class() string {
	kind := q.from.kind
	if slices.Contains(q.servers, q.from.name) {
		kind = "itself"
	}
	if q.from.source != (spec.Target{}) {
		kind += " by its second address"
	}
	own := q.to.kind == "nodeport" && q.from.Node == q.to.via
	return fmt.Sprint(q.to.service, q.to.addr.Port(), q.to.protocol, q.to.kind, q.family, kind, own, q.answer.Verdict,
		q.servers, q.answer.Sticky, q.answer.Evenly, q.answer.Source)
}

// label returns the label of a question's row without the protocol: the rule, the sender and the address.
func (q *question) label(rule oracle.Rule) string {
	kind := q.from.kind
	if slices.Contains(q.servers, q.from.name) {
		kind = "itself"
	}
	if q.to.kind == "nodeport" && q.from.Node != "" {
		kind += map[bool]string{true: "-own-node", false: "-other-node"}[q.from.Node == q.to.via]
	}
	address := q.to.kind
	if q.to.local {
		address += "-local"
	}
	return strings.Join([]string{rule.Name, kind, address}, "/")
}
