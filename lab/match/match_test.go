// SPDX-License-Identifier: Apache-2.0

package match_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/onsi/gomega/types"
	"github.com/ti-mo/conntrack"

	"github.com/viplab/viplab/lab/match"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/traffic"
)

var (
	pod     = netip.MustParseAddrPort("10.244.1.2:1025")
	service = netip.MustParseAddrPort("10.96.0.1:80")
	backend = netip.MustParseAddrPort("10.244.2.2:8080")
	node    = netip.MustParseAddrPort("192.168.7.11:1025")
)

func TestMatchers(t *testing.T) {
	reply := traffic.Answer{Outcome: traffic.Reply,
		Greeting: traffic.Greeting{Server: "a2", Peer: pod, Local: backend}}
	silence := traffic.Answer{Outcome: traffic.Silence, Detail: "fenced by 2 echoes"}
	translated := observe.Flow{Proto: "tcp", Orig: observe.Tuple{Src: pod, Dst: service},
		Reply:  observe.Tuple{Src: backend, Dst: node},
		Status: conntrack.StatusSrcNAT | conntrack.StatusDstNAT | conntrack.StatusSeenReply, Zone: 3, TCPState: "ESTABLISHED"}
	plain := observe.Flow{Proto: "udp", Orig: observe.Tuple{Src: pod, Dst: backend},
		Reply: observe.Tuple{Src: backend, Dst: pod}}
	syn := &observe.Packet{Proto: "tcp", Src: pod, Dst: service, Flags: "SYN", TTL: 64}
	datagram := &observe.Packet{Proto: "udp", Src: backend, Dst: pod, TTL: 64}
	for _, c := range []struct {
		matcher  types.GomegaMatcher
		yes, no  any
		complain string // about no
	}{
		{match.ReplyFrom("a2"), reply, silence, "want Reply by a2\ngot  Silence: fenced by 2 echoes"},
		{match.ReplyFrom("a2"), reply, traffic.Answer{Outcome: traffic.Reply,
			Greeting: traffic.Greeting{Server: "a1", Peer: pod, Local: backend}},
			"want Reply by a2\ngot  Reply by a1 at 10.244.2.2:8080, seen as 10.244.1.2:1025"},
		{match.SeenAs(pod.Addr()), reply, silence, "want Reply, seen as 10.244.1.2\ngot  Silence: fenced by 2 echoes"},
		{match.ReachedAt(backend), reply, silence, "want Reply at 10.244.2.2:8080\ngot  Silence: fenced by 2 echoes"},
		{match.Replied(), reply, silence, "want Reply\ngot  Silence: fenced by 2 echoes"},
		{match.Silent(), silence, reply,
			"want Silence\ngot  Reply by a2 at 10.244.2.2:8080, seen as 10.244.1.2:1025"},
		{match.Refused(), traffic.Answer{Outcome: traffic.Refused}, silence,
			"want Refused\ngot  Silence: fenced by 2 echoes"},
		{match.Unreachable(), traffic.Answer{Outcome: traffic.Unreachable}, silence,
			"want Unreachable\ngot  Silence: fenced by 2 echoes"},
		{match.Reset(), traffic.Answer{Outcome: traffic.Reset}, silence,
			"want Reset\ngot  Silence: fenced by 2 echoes"},
		{match.DNATTo(backend), translated, plain, "want DNAT to 10.244.2.2:8080\n" +
			"got  udp 10.244.1.2:1025 -> 10.244.2.2:8080 | 10.244.2.2:8080 -> 10.244.1.2:1025 UNREPLIED"},
		{match.SNATTo(node.Addr()), translated, plain, ""},
		{match.Untranslated(), plain, translated, ""},
		{match.InZone(3), translated, plain, ""},
		{match.InState("ESTABLISHED"), translated, plain, ""},
		{match.Proto("udp"), datagram, syn, "want udp packet\ngot  tcp 10.244.1.2:1025 > 10.96.0.1:80 SYN ttl 64"},
		{match.From(pod), syn, datagram, ""},
		{match.To(service), syn, datagram, ""},
		{match.Flags("SYN"), syn, datagram, ""},
	} {
		if ok, err := c.matcher.Match(c.yes); !ok || err != nil {
			t.Errorf("%v: %v\n%s", ok, err, c.matcher.FailureMessage(c.yes))
		}
		if ok, err := c.matcher.Match(c.no); ok || err != nil {
			t.Errorf("%v: %v\n%s", ok, err, c.matcher.NegatedFailureMessage(c.no))
		}
		if got := c.matcher.FailureMessage(c.no); c.complain != "" && got != c.complain {
			t.Errorf("it complains\n%s\nwant\n%s", got, c.complain)
		}
	}
}

// A fault passes neither To nor NotTo, and neither does a value of another type.
func TestErrors(t *testing.T) {
	fault := traffic.Answer{Fault: errors.New("bind: every port is taken")}
	if _, err := match.Silent().Match(fault); !errors.Is(err, fault.Fault) {
		t.Error(err)
	}
	if _, err := match.Silent().Match("silence"); err == nil {
		t.Error("a string can be silent")
	}
}
