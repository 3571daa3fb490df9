// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"slices"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// respond returns the reply to a question, at most limit bytes long (0: as long as the client says), or nil.
func (s *Server) respond(message []byte, limit int) []byte {
	var parser dnsmessage.Parser
	header, err := parser.Start(message)
	if err != nil || header.Response {
		return nil
	}
	reply := dnsmessage.Message{Header: dnsmessage.Header{
		ID: header.ID, Response: true, OpCode: header.OpCode, RecursionDesired: header.RecursionDesired,
	}}
	questions, err := parser.AllQuestions()
	extended := extensionsOf(&parser)
	switch {
	case err != nil || len(questions) != 1:
		reply.RCode = dnsmessage.RCodeFormatError
	case header.OpCode != 0:
		reply.RCode = dnsmessage.RCodeNotImplemented
	case extended.version > 0:
		reply.Questions = questions
		extended.code = badVersion
	default:
		reply.Questions = questions
		s.answer(&reply, questions[0])
	}
	if extended.present {
		limit = max(limit, extended.size)
		reply.Additionals = append(reply.Additionals, opt(extended.code))
	}
	return pack(reply, max(limit, plainSize))
}

// answer fills in the records for a question.
func (s *Server) answer(reply *dnsmessage.Message, q dnsmessage.Question) {
	if q.Class == dnsmessage.ClassCHAOS && q.Type == dnsmessage.TypeTXT &&
		strings.EqualFold(q.Name.String(), serverName) {
		r := resource(q.Name, &dnsmessage.TXTResource{TXT: []string{s.name}})
		r.Header.Class, r.Header.TTL = dnsmessage.ClassCHAOS, 0
		reply.Answers = []dnsmessage.Resource{r}
		return
	}
	a := lookup(s.store, q)
	reply.RCode, reply.Answers, reply.Additionals = a.code, a.records, a.extra
	if a.code == dnsmessage.RCodeRefused {
		return
	}
	reply.Authoritative = true
	if a.lacking != "" {
		reply.Authorities = []dnsmessage.Resource{authority(a.lacking)} // with the time to cache "no records" (RFC 2308)
	}
}

// authority returns the SOA record of a zone.
func authority(zone string) dnsmessage.Resource {
	return resource(dnsmessage.MustNewName(zone+"."), &dnsmessage.SOAResource{
		NS:     dnsmessage.MustNewName("ns.dns." + zone + "."),
		MBox:   dnsmessage.MustNewName("hostmaster." + zone + "."),
		Serial: 1, Refresh: 7200, Retry: 1800, Expire: 86400, MinTTL: ttl,
	})
}

// badVersion is BADVERS: the server does not speak the client's version of EDNS (RFC 6891 6.1.3).
const badVersion dnsmessage.RCode = 16

// extensions are what a message says with EDNS (RFC 6891).
type extensions struct {
	present bool
	version int
	size    int              // how large an answer the client takes
	code    dnsmessage.RCode // of the reply, if it does not fit into the header
}

func extensionsOf(p *dnsmessage.Parser) (e extensions) {
	if p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return e
	}
	for {
		h, err := p.AdditionalHeader()
		if err != nil {
			return e // the end, mostly
		}
		if h.Type == dnsmessage.TypeOPT {
			return extensions{present: true, version: int(h.TTL >> 16 & 0xff), size: int(h.Class)}
		}
		if p.SkipAdditional() != nil {
			return e
		}
	}
}

// opt returns the server's EDNS record, with the largest size that UDP carries unfragmented (RFC 9715).
func opt(code dnsmessage.RCode) dnsmessage.Resource {
	r := dnsmessage.Resource{Body: &dnsmessage.OPTResource{}}
	if err := r.Header.SetEDNS0(1232, code, false); err != nil {
		panic(err) // constants
	}
	return r
}

// pack encodes a message. Where it is too long, it leaves out the additional records, which nobody has asked for (RFC
// 2181 9). If that is not enough, it leaves out all records and sets the TC bit, so that the client retries over TCP.
func pack(m dnsmessage.Message, limit int) []byte {
	b, err := m.Pack()
	if err == nil && len(b) <= limit {
		return b
	}
	m.Additionals = slices.DeleteFunc(m.Additionals, func(r dnsmessage.Resource) bool {
		return r.Header.Type != dnsmessage.TypeOPT
	})
	if b, err = m.Pack(); err == nil && len(b) <= limit {
		return b
	}
	m.Truncated, m.Answers, m.Authorities = true, nil, nil
	if b, err = m.Pack(); err != nil {
		return nil
	}
	return b
}
