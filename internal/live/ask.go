// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/viplab/viplab/internal/lab/sctp"
	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/traffic"
)

// silenceLimit is how long a trace waits for an answer where the fences do not prove silence: what drops the packet may
// drop them, too.
const silenceLimit = 3 * time.Second

// request sends the request of a probe, whose protocol may also be "sctp", "icmp" or "icmpv6". An echo has the port 0.
func request(ctx context.Context, p traffic.Probe) (answer traffic.Answer) {
	ctx, cancel := context.WithTimeout(ctx, machine.Limit(silenceLimit))
	defer cancel()
	switch p.Proto {
	case "sctp":
		return sctp.Probe(ctx, p)
	case "icmp", "icmpv6":
		return echo(ctx, p)
	}
	answer = p.Do(ctx)
	if errors.Is(answer.Fault, context.DeadlineExceeded) {
		return traffic.Answer{Source: answer.Source, Outcome: traffic.Silence}
	}
	return answer
}

// echo sends an ICMP echo request and waits for the reply.
func echo(ctx context.Context, p traffic.Probe) traffic.Answer {
	network, number := "ip4:icmp", 1
	var kind, back icmp.Type = ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply
	if p.To.Addr().Is6() {
		network, number = "ip6:ipv6-icmp", 58
		kind, back = ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	source, err := sourceTo(p.From, p.To.Addr())
	if err != nil {
		return traffic.Answer{Outcome: traffic.Unreachable, Detail: err.Error()}
	}
	answer := traffic.Answer{Source: netip.AddrPortFrom(source, 0)}
	conn, err := p.From.ListenPacket(ctx, network, source.String())
	if err != nil {
		answer.Fault = err
		return answer
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) })()
	var id [2]byte // a new one, or connection tracking would know the flow
	_, _ = rand.Read(id[:])
	payload := []byte(rand.Text()) // tells the echo from others
	payload = append(payload, make([]byte, max(0, p.Payload-len(payload)))...)
	message := icmp.Message{Type: kind, Body: &icmp.Echo{ID: int(id[0])<<8 | int(id[1]), Seq: 1, Data: payload}}
	raw, err := message.Marshal(nil) // the kernel adds the checksum of ICMPv6
	if err == nil {
		_, err = conn.WriteTo(raw, &net.IPAddr{IP: p.To.Addr().AsSlice()})
	}
	for err == nil {
		var n int
		buffer := make([]byte, 1<<16)
		if n, _, err = conn.ReadFrom(buffer); err != nil {
			break
		}
		if m, err := icmp.ParseMessage(number, buffer[:n]); err == nil && m.Type == back {
			if e, ok := m.Body.(*icmp.Echo); ok && string(e.Data) == string(payload) {
				answer.Outcome = traffic.Reply
				return answer
			}
		}
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		answer.Outcome, answer.Detail = traffic.Unreachable, err.Error()
		return answer
	}
	answer.Outcome = traffic.Silence
	return answer
}

// sourceTo returns the address that the kernel would send from.
func sourceTo(from *netns.NS, to netip.Addr) (netip.Addr, error) {
	routes, err := from.Netlink().RouteGet(to.AsSlice())
	if err != nil || len(routes) == 0 {
		return netip.Addr{}, fmt.Errorf("no route to %s: %w", to, err)
	}
	source, ok := netip.AddrFromSlice(routes[0].Src)
	if !ok {
		return netip.Addr{}, fmt.Errorf("the route to %s names no source address", to)
	}
	return source.Unmap(), nil
}

// anyPort adds a port to a destination that has none, for protocols without ports.
func anyPort(to string) string {
	if a, err := netip.ParseAddr(to); err == nil {
		return netip.AddrPortFrom(a, 1).String()
	}
	if _, err := netip.ParseAddrPort(to); err == nil || strings.Contains(to, ":") {
		return to
	}
	return to + ":1"
}
