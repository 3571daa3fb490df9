// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/viplab/viplab/internal/machine"
)

// question is a message to both servers. The zero value of what is no name, type or protocol is that of an ordinary
// question.
type question struct {
	name   string // with a dot at its end
	kind   dnsmessage.Type
	proto  string           // "udp" or "tcp"
	class  dnsmessage.Class // 0: Internet
	opcode dnsmessage.OpCode
	times  int    // how often the message has the question: 0 means once, -1 not at all
	edns   uint16 // the size of answers that the client takes; 0: it does not speak EDNS
	later  bool   // the client speaks version 1 of EDNS
}

func (q question) String() string {
	s := fmt.Sprintf("%s %s over %s", q.name, typeName(q.kind), q.proto)
	for _, extra := range []struct {
		is   bool
		text string
	}{
		{q.class != 0, ", class " + q.class.String()}, {q.opcode != 0, fmt.Sprintf(", opcode %d", q.opcode)},
		{q.times != 0, fmt.Sprintf(", %d questions", max(0, q.times))}, {q.edns > 0, fmt.Sprintf(", EDNS %d", q.edns)},
		{q.later, ", EDNS version 1"},
	} {
		if extra.is {
			s += extra.text
		}
	}
	return s
}

func typeName(t dnsmessage.Type) string { return strings.TrimPrefix(t.String(), "Type") }

// id is that of all messages.
const id = 4711

func (q question) pack() ([]byte, error) {
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: id, RecursionDesired: true, OpCode: q.opcode}}
	name, err := dnsmessage.NewName(q.name)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", q.name, err)
	}
	for range max(0, cmp.Or(q.times, 1)) {
		class := cmp.Or(q.class, dnsmessage.ClassINET)
		m.Questions = append(m.Questions, dnsmessage.Question{Name: name, Type: q.kind, Class: class})
	}
	if q.edns > 0 {
		r := dnsmessage.Resource{Body: &dnsmessage.OPTResource{}}
		if err := r.Header.SetEDNS0(int(q.edns), dnsmessage.RCodeSuccess, false); err != nil {
			return nil, err
		}
		if q.later {
			r.Header.TTL |= 1 << 16 // RFC 6891 6.1.3
		}
		m.Additionals = []dnsmessage.Resource{r}
	}
	return m.Pack()
}

// reply has what a server says, by field.
type reply map[string]string

// fields are those of replies, in the order of reports.
var fields = []string{"error", "code", "flags", "answers", "authority", "additional", "edns"}

// answerLimit is how long an answer may take.
const answerLimit = 5 * time.Second

// exchange asks a server. No reply is a reply, too, with an error.
func (w *world) exchange(ctx context.Context, server netip.AddrPort, q question) reply {
	ctx, cancel := context.WithTimeout(ctx, machine.Limit(answerLimit))
	defer cancel()
	data, err := w.send(ctx, server, q)
	if err != nil {
		return reply{"error": "no reply: " + err.Error()}
	}
	var m dnsmessage.Message
	if err := m.Unpack(data); err != nil {
		return reply{"error": err.Error()}
	}
	if m.ID != id || !m.Response {
		return reply{"error": "the reply is to another question"}
	}
	r := reply{"code": codeName(m.RCode), "answers": records(m.Answers), "authority": records(m.Authorities)}
	var flags []string
	for name, is := range map[string]bool{"AA": m.Authoritative, "TC": m.Truncated, "RD": m.RecursionDesired,
		"RA": m.RecursionAvailable, "AD": m.AuthenticData, "other case": otherCase(q, m.Answers)} {
		if is {
			flags = append(flags, name)
		}
	}
	slices.Sort(flags)
	r["flags"] = strings.Join(flags, " ")
	plain := slices.DeleteFunc(slices.Clone(m.Additionals), func(x dnsmessage.Resource) bool {
		if x.Header.Type == dnsmessage.TypeOPT {
			r["edns"] = fmt.Sprintf("size %d, version %d", x.Header.Class, x.Header.TTL>>16&0xff)
			r["code"] = codeName(x.Header.ExtendedRCode(m.RCode))
		}
		return x.Header.Type == dnsmessage.TypeOPT
	})
	r["additional"] = records(plain)
	return r
}

func codeName(c dnsmessage.RCode) string {
	names := map[dnsmessage.RCode]string{0: "NOERROR", 1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP",
		5: "REFUSED", 16: "BADVERS"}
	return cmp.Or(names[c], fmt.Sprintf("code %d", c))
}

// otherCase reports whether an answer spells the name otherwise than the question.
func otherCase(q question, answers []dnsmessage.Resource) bool {
	return slices.ContainsFunc(answers, func(r dnsmessage.Resource) bool {
		owner := r.Header.Name.String()
		return strings.EqualFold(owner, q.name) && owner != q.name
	})
}

func (w *world) send(ctx context.Context, server netip.AddrPort, q question) ([]byte, error) {
	packed, err := q.pack()
	if err != nil {
		return nil, err
	}
	c, err := w.ns.Dial(ctx, q.proto, netip.AddrPort{}, server)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	if q.proto == "tcp" {
		packed = append(binary.BigEndian.AppendUint16(nil, uint16(len(packed))), packed...)
	}
	if _, err := c.Write(packed); err != nil {
		return nil, err
	}
	buffer := make([]byte, 1<<16)
	if q.proto == "udp" {
		n, err := c.Read(buffer)
		return buffer[:n], err
	}
	if _, err := io.ReadFull(c, buffer[:2]); err != nil {
		return nil, err
	}
	n, err := io.ReadFull(c, buffer[:binary.BigEndian.Uint16(buffer)])
	return buffer[:n], err
}

// records returns the records of a section, sorted, in lower case.
func records(all []dnsmessage.Resource) string {
	var out []string
	for _, r := range all {
		text := fmt.Sprintf("%s %d %s", r.Header.Name, r.Header.TTL, inWords(r))
		out = append(out, strings.ToLower(text))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// inWords leaves out what servers may choose: the priority and weight of SRV ("not prescribed by this specification")
// and the serial number of SOA.
func inWords(r dnsmessage.Resource) string {
	kind := typeName(r.Header.Type)
	switch b := r.Body.(type) {
	case *dnsmessage.AResource:
		return kind + " " + netip.AddrFrom4(b.A).String()
	case *dnsmessage.AAAAResource:
		return kind + " " + netip.AddrFrom16(b.AAAA).String()
	case *dnsmessage.CNAMEResource:
		return kind + " " + b.CNAME.String()
	case *dnsmessage.PTRResource:
		return kind + " " + b.PTR.String()
	case *dnsmessage.NSResource:
		return kind + " " + b.NS.String()
	case *dnsmessage.SRVResource:
		return fmt.Sprintf("%s %d %s", kind, b.Port, b.Target)
	case *dnsmessage.TXTResource:
		return fmt.Sprintf("%s %q", kind, b.TXT)
	case *dnsmessage.SOAResource:
		return fmt.Sprintf("%s %s %s %d %d %d %d", kind, b.NS, b.MBox, b.Refresh, b.Retry, b.Expire, b.MinTTL)
	}
	return kind
}
