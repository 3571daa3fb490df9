// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/viplab/viplab/lab/netns"
)

// Question is a DNS question, its client and its server.
type Question struct {
	// From is the client's namespace, and Server the address of the server.
	From   *netns.NS
	Server netip.AddrPort
	// Proto is "udp" or "tcp".
	Proto string
	// Name is a full name, with or without a dot at its end. Do tries no search path.
	Name string
	Type dnsmessage.Type
}

// Reply is a reply to a question.
type Reply struct {
	// From is the address that sent the reply.
	From netip.AddrPort
	Code dnsmessage.RCode
	// Truncated is the TC bit (RFC 1035 4.1.1): only a reply over TCP contains all records.
	Truncated bool
	// Records are the sorted answers: "A 10.96.0.1", "CNAME example.org", "SRV 80 web.shop.svc.cluster.local",
	// "PTR web.shop.svc.cluster.local".
	Records []string
}

// ServerNameQuestion returns a question that any server of this package answers with one record, its own name.
func ServerNameQuestion(from *netns.NS, server netip.AddrPort, proto string) Question {
	return Question{From: from, Server: server, Proto: proto, Name: serverName, Type: dnsmessage.TypeTXT}
}

func (q Question) String() string {
	return fmt.Sprintf("%s: ask %s over %s for %s %s", q.From.Name(), q.Server, q.Proto,
		strings.TrimPrefix(q.Type.String(), "Type"), q.Name)
}

// Do sends the question once and waits for the reply. It returns an error if there is none before the context ends.
func (q Question) Do(ctx context.Context) (Reply, error) {
	r, err := q.do(ctx)
	if err != nil {
		return r, fmt.Errorf("%s: %w", q, err)
	}
	return r, nil
}

func (q Question) do(ctx context.Context) (Reply, error) {
	name, err := dnsmessage.NewName(strings.TrimSuffix(q.Name, ".") + ".")
	if err != nil {
		return Reply{}, err
	}
	class := dnsmessage.ClassINET
	if q.Name == serverName {
		class = dnsmessage.ClassCHAOS
	}
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: uint16(rand.Uint32()), RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: name, Type: q.Type, Class: class}},
	}
	packed, err := m.Pack()
	if err != nil {
		return Reply{}, err
	}
	exchange := q.overUDP
	if q.Proto == "tcp" {
		exchange = q.overTCP
	}
	answer, from, err := exchange(ctx, packed)
	if err != nil {
		return Reply{}, err
	}
	var reply dnsmessage.Message
	if err := reply.Unpack(answer); err != nil {
		return Reply{}, fmt.Errorf("%d bytes from %s are no reply: %w", len(answer), from, err)
	}
	if reply.ID != m.ID || !reply.Response {
		return Reply{}, fmt.Errorf("a reply from %s to another question", from)
	}
	r := Reply{From: from, Code: reply.RCode, Truncated: reply.Truncated}
	for _, a := range reply.Answers {
		r.Records = append(r.Records, inWords(a))
	}
	slices.Sort(r.Records)
	return r, nil
}

// overUDP uses an unconnected socket, which accepts replies from any address. The caller checks the address.
func (q Question) overUDP(ctx context.Context, packed []byte) ([]byte, netip.AddrPort, error) {
	network := "udp4"
	if q.Server.Addr().Is6() {
		network = "udp6"
	}
	c, err := q.From.ListenPacket(ctx, network, ":0")
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	if _, err := c.WriteTo(packed, net.UDPAddrFromAddrPort(q.Server)); err != nil {
		return nil, netip.AddrPort{}, err
	}
	buffer := make([]byte, 64<<10)
	n, from, err := c.ReadFrom(buffer)
	if err != nil {
		return nil, netip.AddrPort{}, fmt.Errorf("no reply: %w", err)
	}
	at := from.(*net.UDPAddr).AddrPort()
	return buffer[:n], netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), nil
}

func (q Question) overTCP(ctx context.Context, packed []byte) ([]byte, netip.AddrPort, error) {
	c, err := q.From.Dial(ctx, "tcp", netip.AddrPort{}, q.Server)
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	if err := writeMessage(c, packed); err != nil {
		return nil, q.Server, err
	}
	answer, err := readMessage(c)
	if err != nil {
		return nil, q.Server, fmt.Errorf("no reply: %w", err)
	}
	return answer, q.Server, nil
}

func inWords(r dnsmessage.Resource) string {
	plain := func(n dnsmessage.Name) string { return strings.TrimSuffix(n.String(), ".") }
	switch b := r.Body.(type) {
	case *dnsmessage.AResource:
		return "A " + netip.AddrFrom4(b.A).String()
	case *dnsmessage.AAAAResource:
		return "AAAA " + netip.AddrFrom16(b.AAAA).String()
	case *dnsmessage.CNAMEResource:
		return "CNAME " + plain(b.CNAME)
	case *dnsmessage.PTRResource:
		return "PTR " + plain(b.PTR)
	case *dnsmessage.SRVResource:
		return fmt.Sprintf("SRV %d %s", b.Port, plain(b.Target))
	case *dnsmessage.TXTResource:
		return "TXT " + strings.Join(b.TXT, "")
	default:
		return r.Header.Type.String()
	}
}
