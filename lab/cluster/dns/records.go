// SPDX-License-Identifier: Apache-2.0

// Package dns is the DNS of a cluster: it answers for Services and pods as "Kubernetes DNS-Based Service Discovery"
// (github.com/kubernetes/dns, docs/specification.md) says, and refuses everything else.
//
//	web.shop.svc.cluster.local               A, AAAA: the ClusterIPs; of a headless Service: its ready endpoints
//	                                         CNAME: the external name, and what a name of the cluster stands for
//	_http._tcp.web.shop.svc.cluster.local    SRV: the port of that name, at the Service or, headless, at each endpoint
//	HOST.web.shop.svc.cluster.local          A, AAAA: the endpoint with that hostname, or whose address is 10-244-1-2
//	80.0.96.10.in-addr.arpa                  PTR: the Service with that ClusterIP, or, headless, the endpoint
//	10-244-1-2.shop.pod.cluster.local        A, AAAA: this address, whether or not a pod has it
//	dns-version.cluster.local                TXT: the version of the specification
//
// The names of pods are not in the specification. They are those of CoreDNS with "pods insecure", as kubeadm installs
// it.
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

// versionTTL is that of the specification's example.
const version, versionTTL = "1.1.0", 28800

// typeIXFR asks for the changes of a zone (RFC 1995), as AXFR asks for all of it.
const typeIXFR dnsmessage.Type = 251

// answer holds the records for a question.
type answer struct {
	code    dnsmessage.RCode
	records []dnsmessage.Resource // the answer section
	extra   []dnsmessage.Resource // the additional section, which saves the client further questions
	// lacking is the zone that lacks what was asked for, or "".
	lacking string
}

// lookup answers a question. A name that exists but has no record of the type is no error: the answer is empty.
func lookup(state *store.Store, q dnsmessage.Question) answer { return resolve(state, q, nil) }

// resolve is lookup after the names of a chain of CNAMEs.
func resolve(state *store.Store, q dnsmessage.Question, chain []string) answer {
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	zone := zoneOf(name)
	if zone == "" || q.Class != dnsmessage.ClassINET || q.Type == dnsmessage.TypeAXFR || q.Type == typeIXFR {
		return answer{code: dnsmessage.RCodeRefused}
	}
	var a answer
	switch inside := strings.TrimSuffix(strings.TrimSuffix(name, zone), "."); {
	case inside == "" && q.Type == dnsmessage.TypeSOA:
		a.records = []dnsmessage.Resource{authority(zone)}
	case inside == "":
	case zone == Domain:
		a = inDomain(state, q, inside, append(chain, name))
	default:
		a = reverse(state.Snapshot(), q, name)
	}
	if len(a.records) == 0 {
		a.lacking = zone
	}
	return a
}

// zoneOf returns the zone of a name, of those that the server has, or "".
func zoneOf(name string) string {
	for _, zone := range []string{Domain, ipv4Zone, ipv6Zone} {
		if name == zone || strings.HasSuffix(name, "."+zone) {
			return zone
		}
	}
	return ""
}

// inDomain answers for a name inside the cluster's domain.
func inDomain(state *store.Store, q dnsmessage.Question, inside string, chain []string) answer {
	labels := strings.Split(inside, ".")
	slices.Reverse(labels) // svc, NAMESPACE, SERVICE, then what belongs to the Service
	switch {
	case inside == "dns-version":
		return versionRecord(q)
	case labels[0] != "svc" && labels[0] != "pod":
		return noSuchName
	}
	snapshot := state.Snapshot()
	if len(labels) < 3 || labels[0] == "pod" {
		named := func(n *corev1.Namespace) bool { return n.Name == labels[1] }
		switch {
		case len(labels) > 1 && !slices.ContainsFunc(snapshot.Namespaces, named):
			return noSuchName
		case len(labels) < 3:
			return answer{}
		}
		return podAddress(q, labels[2:])
	}
	svc, ok := store.Get[*corev1.Service](state, labels[1], labels[2])
	if !ok {
		return noSuchName
	}
	s := service{svc, snapshot, q}
	switch rest := labels[3:]; {
	case svc.Spec.Type == corev1.ServiceTypeExternalName:
		return s.alias(state, rest, chain)
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

func versionRecord(q dnsmessage.Question) (a answer) {
	if q.Type == dnsmessage.TypeTXT {
		r := resource(q.Name, &dnsmessage.TXTResource{TXT: []string{version}})
		r.Header.TTL = versionTTL
		a.records = []dnsmessage.Resource{r}
	}
	return a
}

// podAddress returns the address that a label spells with dashes: 10-244-1-2, or fd00-10--2.
func podAddress(q dnsmessage.Question, labels []string) answer {
	separator := ":"
	if strings.Count(labels[0], "-") == 3 && !strings.Contains(labels[0], "--") {
		separator = "."
	}
	addr, err := netip.ParseAddr(strings.ReplaceAll(labels[0], "-", separator))
	if err != nil || addr.Zone() != "" || len(labels) > 1 {
		return noSuchName
	}
	return answer{records: addressRecords(q.Name, []netip.Addr{addr}, q.Type)}
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

// alias returns the answer for a Service of type ExternalName: a CNAME for any type of question (RFC 1034 3.6.2), and
// what the server knows of the name that it stands for, because stub resolvers do not ask again. chain has the names so
// far, this one the last.
func (s service) alias(state *store.Store, rest, chain []string) answer {
	target, err := dnsmessage.NewName(strings.TrimSuffix(s.Spec.ExternalName, ".") + ".")
	if err != nil || len(rest) > 0 {
		return noSuchName
	}
	cname := resource(s.question.Name, &dnsmessage.CNAMEResource{CNAME: target})
	name := strings.ToLower(strings.TrimSuffix(target.String(), "."))
	var known answer
	if zoneOf(name) != "" && s.question.Type != dnsmessage.TypeCNAME && !slices.Contains(chain, name) {
		q := s.question
		q.Name = target
		known = resolve(state, q, chain) // its code is that of the last name (RFC 6604)
	}
	known.records = append([]dnsmessage.Resource{cname}, known.records...)
	return known
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

// ports returns the SRV records of a port. An unnamed port has none.
func (s service) ports(port, proto string) answer {
	if port == "" {
		return noSuchName
	}
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
					out = append(out, endpoint{ptr.Deref(e.Hostname, dashed(ip)), addr, slice.Ports})
				}
			}
		}
	}
	return out
}

// dashed returns the label that stands for an address. No label ends in a dash, so fd00:: is fd00--0.
func dashed(ip string) string {
	label := strings.NewReplacer(".", "-", ":", "-").Replace(ip)
	if strings.HasSuffix(label, "-") {
		label += "0"
	}
	return label
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
