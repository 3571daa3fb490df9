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
	switch {
	case err != nil || len(questions) != 1:
		reply.RCode = dnsmessage.RCodeFormatError
	case header.OpCode != 0:
		reply.RCode = dnsmessage.RCodeNotImplemented
	default:
		reply.Questions = questions
		s.answer(&reply, questions[0])
	}
	if extended, size := extensions(&parser); extended {
		limit = max(limit, size)
		reply.Additionals = append(reply.Additionals, opt())
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
	if len(a.records) == 0 {
		reply.Authorities = []dnsmessage.Resource{authority()} // with the time to cache "no records" (RFC 2308)
	}
}

func authority() dnsmessage.Resource {
	zone := dnsmessage.MustNewName(Domain + ".")
	return resource(zone, &dnsmessage.SOAResource{
		NS:     dnsmessage.MustNewName("ns.dns." + Domain + "."),
		MBox:   dnsmessage.MustNewName("hostmaster." + Domain + "."),
		Serial: 1, Refresh: 7200, Retry: 1800, Expire: 86400, MinTTL: ttl,
	})
}

// extensions reports whether the client speaks EDNS (RFC 6891), and how large an answer it takes.
func extensions(p *dnsmessage.Parser) (extended bool, size int) {
	if p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return false, 0
	}
	for {
		h, err := p.AdditionalHeader()
		if err != nil {
			return false, 0 // the end, mostly
		}
		if h.Type == dnsmessage.TypeOPT {
			return true, int(h.Class)
		}
		if p.SkipAdditional() != nil {
			return false, 0
		}
	}
}

// opt returns the server's EDNS record, with the largest size that UDP carries unfragmented (RFC 9715).
func opt() dnsmessage.Resource {
	r := dnsmessage.Resource{Body: &dnsmessage.OPTResource{}}
	if err := r.Header.SetEDNS0(1232, dnsmessage.RCodeSuccess, false); err != nil {
		panic(err) // constants
	}
	return r
}

// pack encodes a message. It omits the records of a message that is too long and sets the TC bit, so that the client
// retries over TCP.
func pack(m dnsmessage.Message, limit int) []byte {
	b, err := m.Pack()
	if err == nil && len(b) <= limit {
		return b
	}
	m.Truncated, m.Answers, m.Authorities = true, nil, nil
	m.Additionals = slices.DeleteFunc(m.Additionals, func(r dnsmessage.Resource) bool {
		return r.Header.Type != dnsmessage.TypeOPT
	})
	b, err = m.Pack()
	if err != nil {
		return nil
	}
	return b
}
