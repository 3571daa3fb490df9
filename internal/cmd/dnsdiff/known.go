// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// known is a difference that stays, with the reason.
type known struct {
	fields string // those of a reply that it explains
	is     func(q question, theirs, ours reply) bool
	reason string
}

// section3 ends the reasons of records that CoreDNS has and the specification does not.
const section3 = "; the specification has no such record (3: implementations may extend it)"

var knownDifferences = []known{
	{"code", func(q question, t, o reply) bool {
		return q.kind == dnsmessage.TypeSOA && t["code"] == "NOERROR" && o["code"] == "NXDOMAIN"
	}, "RFC 8020: a name does not exist for any type; CoreDNS does not look for the name of a question for SOA"},
	{"code", func(q question, t, o reply) bool {
		return named(q, `^(dns-version\.|([a-z]+\.)?(svc|pod)\.)?cluster\.local\.$|\.arpa\.$`) && t["code"] == "NXDOMAIN" &&
			o["code"] == "NOERROR"
	}, "RFC 8020: a name with a record of one type exists for all types"},
	{"answers authority", func(q question, t, o reply) bool {
		return !slices.Contains([]dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypeCNAME}, q.kind) &&
			lacksCNAME(t, o)
	}, "specification 2.5: the CNAME record must exist; it answers questions of any type (RFC 1034 3.6.2)"},
	{"code answers authority", func(q question, t, o reply) bool {
		return named(q, `^(ring-(a|b|self)|inside-missing)\.`) && lacksCNAME(t, o)
	}, "specification 2.5: the CNAME record must exist, also where the name behind it has no address; the code is " +
		"that of the last name (RFC 6604)"},
	{"code answers authority", func(q question, t, o reply) bool { return named(q, `^number\.`) && lacksCNAME(t, o) },
		`Kubernetes on ExternalName: an IPv4 address is "a DNS name comprised of digits"; CoreDNS does not resolve it`},
	{"code", func(q question, t, o reply) bool { return named(q, `^ns\.dns\.cluster\.local\.$`) && extends(t, o) },
		"CoreDNS has a name for itself" + section3},
	{"flags answers authority additional", func(q question, t, o reply) bool {
		return q.kind == dnsmessage.TypeSRV && !named(q, `^_`) && extends(t, o)
	}, "CoreDNS has SRV records for all ports at the name of a Service, an endpoint or a pod" + section3},
	{"flags answers authority", func(q question, t, o reply) bool {
		return q.kind != dnsmessage.TypeSRV && named(q, `^_[a-z-]+\._(tcp|udp|sctp)\.`) && extends(t, o)
	}, "CoreDNS has addresses at the name of a port" + section3},
	{"code answers authority additional", func(q question, t, o reply) bool {
		return named(q, `^(_?http\.tcp|_\._tcp)\.`) && extends(t, o)
	}, "CoreDNS takes names of ports without underscores, and no name for any port" + section3},
	{"code answers authority additional", func(q question, t, o reply) bool {
		return named(q, `^(10-244-9-\d|front)\.web\.shop\.svc|^\d\.9\.244\.10\.`) && extends(t, o)
	}, "CoreDNS has the endpoints of Services with a ClusterIP" + section3},
	{"code answers authority additional", func(q question, t, o reply) bool {
		return named(q, `^([^.]+\.)+10-244-1-2\.shop\.pod\.`) && extends(t, o)
	}, "CoreDNS ignores labels before the name of a pod" + section3},
	{"answers additional", func(q question, t, o reply) bool {
		return strings.Contains(t["flags"], "TC") && strings.Contains(o["flags"], "TC")
	}, "a truncated reply has some records, or none; clients ignore them and ask over TCP (RFC 2181 9)"},
	{"additional", func(q question, t, o reply) bool {
		return q.proto == "udp" && q.edns == 0 && o["additional"] == "" && t["answers"] == o["answers"]
	},
		"specification 2.4.2: a reply may have additional records; more of them fit into CoreDNS's shorter encoding"},
	{"edns", func(q question, t, o reply) bool { return t["edns"] != "" && o["edns"] == "size 1232, version 0" },
		"RFC 6891 6.2.3: a reply has the size that the server takes; CoreDNS repeats the client's"},
	{"code flags answers", func(q question, t, o reply) bool { return q.opcode == 4 },
		"CoreDNS answers a NOTIFY as if it were a question"},
}

func named(q question, pattern string) bool {
	return regexp.MustCompile(pattern).MatchString(strings.ToLower(q.name))
}

func lacksCNAME(theirs, ours reply) bool {
	return theirs["answers"] == "" && strings.Contains(ours["answers"], " cname ")
}

// extends reports whether CoreDNS has records or a name that the lab's DNS does not have.
func extends(theirs, ours reply) bool {
	return theirs["code"] == "NOERROR" && ours["answers"] == "" && !strings.Contains(ours["flags"], "TC") &&
		(theirs["answers"] != "" || ours["code"] == "NXDOMAIN")
}

// reasonsFor returns the known differences that explain some of the fields, and the fields that none explains.
func reasonsFor(q question, theirs, ours reply, differing []string) (reasons, left []string) {
	left = slices.Clone(differing)
	for _, k := range knownDifferences {
		explained := strings.Fields(k.fields)
		explains := func(field string) bool { return slices.Contains(explained, field) }
		if slices.ContainsFunc(differing, explains) && k.is(q, theirs, ours) {
			reasons = append(reasons, k.reason)
			left = slices.DeleteFunc(left, explains)
		}
	}
	return reasons, left
}
