// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"context"
	"encoding/binary"
	"net/netip"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/viplab/viplab/internal/lab/iptablessave"
	. "github.com/viplab/viplab/internal/lab/nstest"
	"github.com/viplab/viplab/internal/lab/ruleset"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

func TestKeysKnowAPacketWhateverItsAddresses(t *testing.T) {
	segment := func(seq, ack uint32, flags byte) []byte {
		b := make([]byte, 20)
		binary.BigEndian.PutUint32(b[4:], seq)
		binary.BigEndian.PutUint32(b[8:], ack)
		b[12], b[13] = 10<<4, flags // with options, which the kernel does not show
		return b
	}
	network := func(proto byte) []byte {
		return append([]byte{0x45, 0, 0, 60, 0, 0, 0, 0, 64, proto, 0, 0}, 10, 0, 0, 1, 10, 0, 0, 2)
	}
	datagram := func(payload string) []byte { return append(make([]byte, 8), payload...) }
	chunk := func(kind byte, tag, init uint32) []byte {
		b := make([]byte, 20)
		binary.BigEndian.PutUint32(b[4:], tag)
		b[12] = kind
		binary.BigEndian.PutUint32(b[16:], init)
		return b
	}
	echo := func(kind byte, payload string) []byte { return append([]byte{kind, 0, 0, 0, 0, 1, 0, 1}, payload...) }
	seven := []byte{0, 0, 0, 7}
	back := map[observe.Tuple]bool{{Src: netip.MustParseAddrPort("10.0.0.1:0"), Dst: netip.MustParseAddrPort("10.0.0.2:0")}: true}
	for _, c := range []struct {
		key       key
		proto     byte
		transport []byte
		want      bool
	}{
		{key{proto: "tcp", mark: seven}, 6, segment(7, 0, 0x02), true},
		{key{proto: "tcp", mark: seven}, 6, segment(8, 0, 0x02), false},
		{key{proto: "tcp", mark: seven}, 6, segment(7, 0, 0x12), false},
		{key{proto: "tcp", mark: seven, role: answers}, 6, segment(9, 8, 0x12), true},
		{key{proto: "tcp", mark: seven, role: answers}, 6, segment(0, 8, 0x14), true},
		{key{proto: "tcp", mark: seven, role: answers}, 6, segment(9, 9, 0x12), false},
		{key{proto: "tcp", mark: seven}, 17, segment(7, 0, 0x02), false},
		{key{proto: "udp", mark: []byte("hello, world")}, 17, datagram("hello, world!"), true},
		{key{proto: "udp", mark: []byte("hello, world")}, 17, datagram("hello, there"), false},
		{key{proto: "udp", mark: []byte("hello, world")}, 17, datagram(""), false},
		{key{proto: "udp", role: answers, ways: back}, 17, datagram("hello"), true},
		{key{proto: "udp", role: answers}, 17, datagram("hello"), false},
		{key{proto: "icmp", mark: []byte("hello, world")}, 1, echo(8, "hello, world"), true},
		{key{proto: "icmp", mark: []byte("hello, world")}, 1, echo(0, "hello, world"), false},
		{key{proto: "icmp", mark: []byte("hello, world"), role: answers}, 1, echo(0, "hello, world"), true},
		{key{proto: "sctp", mark: seven}, 132, chunk(1, 0, 7), true},
		{key{proto: "sctp", mark: seven}, 132, chunk(1, 7, 8), false},
		{key{proto: "sctp", mark: seven, role: answers}, 132, chunk(2, 7, 9), true},
		{key{proto: "sctp", mark: seven, role: answers}, 132, chunk(2, 9, 7), false},
	} {
		if got := c.key.header(network(c.proto), c.transport); got != c.want {
			t.Errorf("%+v of protocol %d, %x: %t", c.key, c.proto, c.transport, got)
		}
	}
}

func TestCountersAreRead(t *testing.T) {
	got := map[string]uint64{}
	addCounters(got, "Ip: Forwarding InAddrErrors\nIp: 1 5\nTcpExt: IPReversePathFilter\nTcpExt: 3\n")
	addCounters(got, "Ip6InNoRoutes                   \t4\n")
	want := map[string]uint64{
		"Ip.Forwarding": 1, "Ip.InAddrErrors": 5, "TcpExt.IPReversePathFilter": 3, "Ip6InNoRoutes": 4,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A client and a router that translates: client 10.0.1.2 - 10.0.1.1 router.
func TestChangesOfAPacket(t *testing.T) {
	for _, program := range []string{"iptables-nft", "iptables-legacy"} {
		for _, command := range []string{program, "nft"} {
			if _, err := exec.LookPath(command); err != nil {
				t.Skip(err)
			}
		}
		client, router := NewNS(t, "client"), NewNS(t, "router")
		Veth(t, client, "eth0", router, "eth0")
		address(t, client, "10.0.1.2/24")
		address(t, router, "10.0.1.1/24")
		address(t, router, "10.0.9.9/32")
		cmd := exec.Command("sh", "-ec", program+" -t mangle -A PREROUTING -p tcp -j MARK --set-mark 7; "+
			program+" -t nat -A PREROUTING -p tcp --dport 80 -j DNAT --to-destination 10.0.9.9:8080; "+
			program+" -A INPUT -p tcp --dport 8080 -j DROP")
		Must(t, router.Run(cmd))
		tracer, err := Start(t.Context(), []*netns.NS{router}, []*netns.NS{client}, ruleset.IP, Select{Proto: "tcp"},
			func(ns *netns.NS) (*ruleset.Ruleset, error) { return ruleset.Read(t.Context(), ns) })
		Must(t, err)
		source, to := netip.MustParseAddrPort("10.0.1.2:4000"), netip.MustParseAddrPort("10.0.1.1:80")
		dial(t, client, router, source, to)
		Must(t, tracer.End(t.Context()))
		w, err := tracer.Walk("client", "tcp", source, to)
		Must(t, err)
		var got []string
		for _, s := range w.Steps {
			if s.Rule != "" {
				got = append(got, iptablessave.Rule(s.Rule).Target()+" "+strings.Join(s.Changed, " ")+" "+s.Before.State)
			}
		}
		want := []string{"MARK mark NEW", "DNAT destinationIP destinationPort state NEW", "DROP  NEW,DNAT"}
		if d := w.Dropped(); !slices.Equal(got, want) || d == nil || d.Place != "router" || d.Backend != program {
			t.Errorf("%s: %q, want %q; dropped by %+v", program, got, want, d)
		}
	}
}

func address(t *testing.T, ns *netns.NS, cidr string) {
	t.Helper()
	a, err := netlink.ParseAddr(cidr)
	Must(t, err)
	Must(t, ns.Netlink().AddrAdd(Link(t, ns, "eth0"), a))
}

// dial sends a SYN that nothing answers, and returns when a rule of the router has dropped it.
func dial(t *testing.T, client, router *netns.NS, source, to netip.AddrPort) {
	t.Helper()
	ctx := Within(t)
	done := make(chan struct{})
	stop, cancel := context.WithCancel(ctx)
	go func() {
		defer close(done)
		if conn, err := client.Dial(stop, "tcp", source, to); err == nil {
			conn.Close()
		}
	}()
	for !dropped(t, router) && ctx.Err() == nil {
	}
	cancel()
	<-done
}

func dropped(t *testing.T, router *netns.NS) bool {
	t.Helper()
	r, err := ruleset.Read(t.Context(), router)
	Must(t, err)
	for _, s := range r.At("input", ruleset.IP) {
		if s.Chain != nil && len(s.Chain.Rules) > 0 && s.Chain.Rules[0].Counters != nil && s.Chain.Rules[0].Counters.Packets > 0 {
			return true
		}
	}
	return false
}
