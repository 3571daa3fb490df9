// SPDX-License-Identifier: Apache-2.0

// Package dns is the DNS of a cluster: it answers for Services and pods as "Kubernetes DNS-Based Service Discovery"
// (github.com/kubernetes/dns, docs/specification.md) says, and refuses everything else.
//
//	web.shop.svc.cluster.local               A, AAAA: the ClusterIPs; of a headless Service: its ready endpoints
//	                                         CNAME: the external name
//	_http._tcp.web.shop.svc.cluster.local    SRV: the port of that name, at the Service or, headless, at each endpoint
//	HOST.web.shop.svc.cluster.local          A, AAAA: the endpoint with that hostname, or whose address is 10-244-1-2
//	80.0.96.10.in-addr.arpa                  PTR: the Service with that ClusterIP, or, headless, the endpoint
package dns

import (
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab/cluster/store"
)

// Domain is the suffix of all names of the cluster.
const Domain = "cluster.local"

// ttl is how long clients may keep an answer, in seconds: CoreDNS's default for Services.
const ttl = 5

// answer holds the records for a question.
type answer struct {
	code    dnsmessage.RCode
	records []dnsmessage.Resource // the answer section
	extra   []dnsmessage.Resource // the additional section, which saves the client further questions
}

// lookup answers a question. A name that exists but has no record of the type is no error: the answer is empty.
func lookup(state *store.Store, q dnsmessage.Question) answer {
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	inside, ours := strings.CutSuffix(name, "."+Domain)
	if strings.HasSuffix(name, ipv4Zone) || strings.HasSuffix(name, ipv6Zone) {
		return reverse(state.Snapshot(), q, name)
	}
	if name == Domain {
		return answer{}
	}
	if !ours || q.Class != dnsmessage.ClassINET {
		return answer{code: dnsmessage.RCodeRefused}
	}
	labels := strings.Split(inside, ".")
	slices.Reverse(labels) // svc, NAMESPACE, SERVICE, then what belongs to the Service
	if labels[0] != "svc" {
		return noSuchName
	}
	snapshot := state.Snapshot()
	if len(labels) < 3 {
		named := func(n *corev1.Namespace) bool { return n.Name == labels[1] }
		if len(labels) == 1 || slices.ContainsFunc(snapshot.Namespaces, named) {
			return answer{}
		}
		return noSuchName
	}
	svc, ok := store.Get[*corev1.Service](state, labels[1], labels[2])
	if !ok {
		return noSuchName
	}
	s := service{svc, snapshot, q}
	switch rest := labels[3:]; {
	case svc.Spec.Type == corev1.ServiceTypeExternalName:
		return s.alias(rest)
	case len(rest) == 0:
		return s.addresses("")
	case len(rest) == 1 && !strings.HasPrefix(rest[0], "_"):
		return s.addresses(rest[0])
	case len(rest) == 2 && strings.HasPrefix(rest[0], "_") && strings.HasPrefix(rest[1], "_"):
		return s.ports(rest[1][1:], rest[0][1:])
	default:
		return noSuchName
	}
}

var noSuchName = answer{code: dnsmessage.RCodeNameError}

// service answers questions about one Service.
type service struct {
	*corev1.Service
	snapshot *store.Snapshot
	question dnsmessage.Question
}

func (s service) headless() bool { return s.Spec.ClusterIP == corev1.ClusterIPNone }

// name returns the DNS name of the Service, or of something that belongs to it.
func (s service) name(prefix string) dnsmessage.Name {
	if prefix != "" {
		prefix += "."
	}
	n, err := dnsmessage.NewName(prefix + s.Name + "." + s.Namespace + ".svc." + Domain + ".")
	if err != nil {
		panic(err) // valid names of Kubernetes are short enough
	}
	return n
}

// alias returns the answer for a Service of type ExternalName, for any type of question.
func (s service) alias(rest []string) answer {
	target, err := dnsmessage.NewName(strings.TrimSuffix(s.Spec.ExternalName, ".") + ".")
	if err != nil || len(rest) > 0 {
		return noSuchName
	}
	return answer{records: []dnsmessage.Resource{resource(s.question.Name, &dnsmessage.CNAMEResource{CNAME: target})}}
}

// addresses returns the addresses of the Service or, if host is not empty, of the endpoint with that hostname.
func (s service) addresses(host string) answer {
	var all []netip.Addr
	if s.headless() {
		for _, e := range s.endpoints() {
			if host == "" || e.host == host {
				all = append(all, e.addr)
			}
		}
	} else if host == "" {
		for _, ip := range s.Spec.ClusterIPs {
			if a, err := netip.ParseAddr(ip); err == nil {
				all = append(all, a)
			}
		}
	}
	if len(all) == 0 {
		return noSuchName
	}
	return answer{records: addressRecords(s.question.Name, all, s.question.Type)}
}

// ports returns the SRV records of a port.
func (s service) ports(port, proto string) answer {
	var a answer
	add := func(host string, number uint16, addr netip.Addr) {
		target := s.name(host)
		srv := &dnsmessage.SRVResource{Weight: 100, Port: number, Target: target}
		record := resource(s.question.Name, srv)
		same := func(r dnsmessage.Resource) bool { return *r.Body.(*dnsmessage.SRVResource) == *srv }
		if !slices.ContainsFunc(a.records, same) { // one for both families
			a.records = append(a.records, record)
		}
		a.extra = append(a.extra, addressRecords(target, []netip.Addr{addr}, typeOf(addr))...)
	}
	if s.headless() {
		for _, e := range s.endpoints() {
			for _, p := range e.ports {
				protocol := ptr.Deref(p.Protocol, corev1.ProtocolTCP)
				if ptr.Deref(p.Name, "") == port && strings.EqualFold(string(protocol), proto) {
					add(e.host, uint16(ptr.Deref(p.Port, 0)), e.addr)
				}
			}
		}
	}
	for _, p := range s.Spec.Ports {
		if s.headless() || p.Name != port || !strings.EqualFold(string(p.Protocol), proto) {
			continue
		}
		for _, ip := range s.Spec.ClusterIPs {
			if addr, err := netip.ParseAddr(ip); err == nil {
				add("", uint16(p.Port), addr)
			}
		}
	}
	switch {
	case len(a.records) == 0:
		return noSuchName
	case s.question.Type != dnsmessage.TypeSRV:
		return answer{}
	}
	return a
}

// endpoint is a ready endpoint of a headless Service.
type endpoint struct {
	host  string
	addr  netip.Addr
	ports []discoveryv1.EndpointPort
}

func (s service) endpoints() []endpoint {
	var out []endpoint
	for _, slice := range s.snapshot.EndpointSlices {
		if slice.Namespace != s.Namespace || slice.Labels[discoveryv1.LabelServiceName] != s.Name {
			continue
		}
		for _, e := range slice.Endpoints {
			if !ptr.Deref(e.Conditions.Ready, true) {
				continue
			}
			for _, ip := range e.Addresses {
				if addr, err := netip.ParseAddr(ip); err == nil {
					dashed := strings.NewReplacer(".", "-", ":", "-").Replace(ip)
					out = append(out, endpoint{ptr.Deref(e.Hostname, dashed), addr, slice.Ports})
				}
			}
		}
	}
	return out
}

// addressRecords returns the addresses of a type, each once.
func addressRecords(name dnsmessage.Name, addrs []netip.Addr, t dnsmessage.Type) []dnsmessage.Resource {
	var out []dnsmessage.Resource
	for i, a := range addrs {
		if typeOf(a) != t || slices.Contains(addrs[:i], a) {
			continue
		}
		if a.Is4() {
			out = append(out, resource(name, &dnsmessage.AResource{A: a.As4()}))
		} else {
			out = append(out, resource(name, &dnsmessage.AAAAResource{AAAA: a.As16()}))
		}
	}
	return out
}

func typeOf(a netip.Addr) dnsmessage.Type {
	if a.Is4() {
		return dnsmessage.TypeA
	}
	return dnsmessage.TypeAAAA
}

func resource(name dnsmessage.Name, body dnsmessage.ResourceBody) dnsmessage.Resource {
	return dnsmessage.Resource{
		Header: dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET, TTL: ttl}, Body: body,
	}
}
