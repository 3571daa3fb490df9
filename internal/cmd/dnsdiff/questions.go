// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/viplab/viplab/lab/cluster/dns"
	"github.com/viplab/viplab/lab/cluster/store"
)

// kinds are the types to ask for. dnsmessage has no name for the last ones: CAA, SVCB, HTTPS and DS.
var kinds = []dnsmessage.Type{
	dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypeSRV, dnsmessage.TypePTR, dnsmessage.TypeTXT,
	dnsmessage.TypeCNAME, dnsmessage.TypeMX, dnsmessage.TypeNS, dnsmessage.TypeSOA, dnsmessage.TypeALL, 257, 64, 65, 43,
}

// questions returns all questions: every type about every name, and others that concern no name.
func questions(state *store.Store, seed uint64, generated int) []question {
	var out []question
	names := slices.Concat(written(), searched(), ofServices(state), reversed(state), random(seed, generated))
	for _, name := range names {
		for _, kind := range kinds {
			for _, proto := range []string{"udp", "tcp"} {
				out = append(out, question{name: name, kind: kind, proto: proto})
			}
		}
	}
	return append(out, odd()...)
}

// written are names around the schema.
func written() []string {
	var out []string
	for _, name := range []string{
		"", "svc", "pod", "shop.svc", "empty.svc", "nobody.svc", "svc.svc", "web.svc.svc", "shop", "default.svc",
		"kubernetes.default.svc", "dns-version", "ns.dns", "dns", "apex.dns", "hostmaster", "any", "*.shop.svc", "*.*.svc",
		"WEB.Shop.sVc", "web.shop.SVC", "_HTTP._TCP.web.shop.svc", "_http._tcp.web.shop.pod",
		"shop.pod", "nobody.pod", "10-244-1-2.shop.pod", "10-244-1-99.shop.pod", "10-244-1-2.nobody.pod",
		"10-244-1.shop.pod", "10-244-1-256.shop.pod", "web.shop.pod", "fd00-10-244-1--2.shop.pod", "fd00--1.shop.pod",
		"--1.shop.pod", "x.10-244-1-2.shop.pod", "010-244-001-002.shop.pod",
		"_http._tcp.web", "_tcp.web.shop.svc", "_http.web.shop.svc", "http.tcp.web.shop.svc", "_http.tcp.web.shop.svc",
		"_._tcp.web.shop.svc", "_http._tcp.db.shop.svc", "_sql._tcp.db-0.db.shop.svc", "_._tcp.unnamed.shop.svc",
		"_http._tcp.10-244-9-2.web.shop.svc", "__http.__tcp.web.shop.svc", "_http._tcp._web.shop.svc",
		"a.b.web.shop.svc", "a.b.c.web.shop.svc", "z.pin._zone.db.shop.svc", "db_0.db.shop.svc",
	} {
		out = append(out, join(name))
	}
	return append(out, "example.org.", "org.", ".", "local.", "xcluster.local.", "id.server.", "version.bind.",
		"in-addr.arpa.", "ip6.arpa.", "10.in-addr.arpa.", "96.10.in-addr.arpa.", "80.0.96.010.in-addr.arpa.",
		"x.80.0.96.10.in-addr.arpa.", "256.0.96.10.in-addr.arpa.", "99.99.99.10.in-addr.arpa.", "0.d.f.ip6.arpa.")
}

func join(name string) string { return strings.TrimPrefix(name+"."+dns.Domain+".", ".") }

// searched are the names that resolvers try in turn for a short one, with the search path of a pod in namespace shop.
func searched() []string {
	var out []string
	for _, name := range []string{"web", "web.shop", "web.shop.svc", "web.shop.svc.cluster.local", "db-0.db", "web.svc",
		"nobody", "example.org", "_http._tcp.web"} {
		for _, domain := range []string{"shop.svc.", "svc.", ""} {
			out = append(out, name+"."+domain+dns.Domain+".")
		}
		out = append(out, name+".")
	}
	return out
}

// ofServices are the names of all Services, of their ports, and of all endpoints below each Service.
func ofServices(state *store.Store) []string {
	snapshot := state.Snapshot()
	var out []string
	for _, s := range snapshot.Services {
		name := s.Name + "." + s.Namespace + ".svc"
		out = append(out, join(name), join("nobody."+name), join("_nobody._tcp."+name))
		for _, p := range s.Spec.Ports {
			for _, proto := range []string{"tcp", "udp", "sctp"} {
				out = append(out, join(fmt.Sprintf("_%s._%s.%s", p.Name, proto, name)))
			}
		}
		for _, slice := range snapshot.EndpointSlices {
			if slice.Labels["kubernetes.io/service-name"] != s.Name || slice.Namespace != s.Namespace {
				continue
			}
			for _, e := range slice.Endpoints[:min(len(slice.Endpoints), 6)] {
				dashed := strings.NewReplacer(".", "-", ":", "-").Replace(e.Addresses[0])
				out = append(out, join(dashed+"."+name), join(dashed+"0."+name))
				if e.Hostname != nil {
					out = append(out, join(*e.Hostname+"."+name))
				}
			}
		}
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(s string) bool { return strings.Contains(s, "_._") })
}

// reversed are the names of all addresses.
func reversed(state *store.Store) []string {
	snapshot := state.Snapshot()
	var all []string
	for _, s := range snapshot.Services {
		all = append(all, s.Spec.ClusterIPs...)
		all = append(all, s.Spec.ExternalIPs...)
	}
	for _, slice := range snapshot.EndpointSlices {
		for _, e := range slice.Endpoints[:min(len(slice.Endpoints), 6)] {
			all = append(all, e.Addresses...)
		}
	}
	var out []string
	for _, text := range all {
		if a, err := netip.ParseAddr(text); err == nil {
			out = append(out, dns.ReverseName(a)+".")
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// random are names made of labels of the schema and of the cluster, in any order and number.
func random(seed uint64, n int) []string {
	d := rand.New(rand.NewPCG(seed, 0))
	labels := []string{"svc", "pod", "shop", "empty", "web", "db", "db-0", "outside", "inside", "none", "_http", "_tcp",
		"_udp", "_sql", "10-244-1-2", "twin", "twins", "early", "early-0", "x", "cluster", "local", "portless", "lone"}
	var out []string
	for range n {
		var parts []string
		for range d.IntN(4) {
			parts = append(parts, labels[d.IntN(len(labels))])
		}
		tail := []string{"shop.svc", "web.shop.svc", "db.shop.svc", "svc", "pod", "shop.pod", ""}[d.IntN(7)]
		out = append(out, join(strings.Trim(strings.Join(append(parts, tail), "."), ".")))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// odd are questions of other forms.
func odd() []question {
	web, big := join("web.shop.svc"), join("big.shop.svc")
	var out []question
	for _, proto := range []string{"udp", "tcp"} {
		for _, q := range []question{
			{name: web, class: dnsmessage.ClassCHAOS}, {name: web, class: dnsmessage.ClassHESIOD},
			{name: web, class: dnsmessage.ClassANY}, {name: web, opcode: 1}, {name: web, opcode: 2}, {name: web, opcode: 4},
			{name: web, opcode: 5}, {name: web, times: 2}, {name: web, times: -1}, {name: web, edns: 512},
			{name: web, edns: 1232}, {name: web, edns: 4096}, {name: web, edns: 100}, {name: web, edns: 1232, later: true},
			{name: join("nobody.shop.svc"), edns: 1232}, {name: big, edns: 512}, {name: big, edns: 1232},
			{name: big, edns: 4096}, {name: big}, {name: join("_http._tcp.big.shop.svc"), kind: dnsmessage.TypeSRV},
			{name: join("_http._tcp.big.shop.svc"), kind: dnsmessage.TypeSRV, edns: 65535},
			{name: web, kind: dnsmessage.TypeAXFR}, {name: join(""), kind: dnsmessage.TypeAXFR},
			{name: join(""), kind: 251}, // IXFR
		} {
			if q.proto = proto; q.kind == 0 {
				q.kind = dnsmessage.TypeA
			}
			out = append(out, q)
		}
	}
	return out
}
