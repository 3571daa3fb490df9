// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/vishvananda/netlink"

	. "github.com/viplab/viplab/internal/lab/nstest"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/traffic"
)

func capture(t *testing.T, ns *netns.NS) *Capture {
	t.Helper()
	c, err := StartCapture(ns)
	Must(t, err)
	t.Cleanup(func() { Must(t, c.Close()) })
	return c
}

// find lists what was captured of a probe, as "device direction packet".
func find(t *testing.T, c *Capture, keep func(*Packet) bool) []string {
	t.Helper()
	var out []string
	for _, f := range c.Packets() {
		p, err := Decode(f)
		if err == nil && keep(p) {
			out = append(out, fmt.Sprintf("%s %s %s", f.Device, f.Direction, p))
		}
	}
	return out
}

func TestCapture(t *testing.T) {
	w := newWorld(t)
	serve(t, w)
	NFT(t, w.router, nat)
	c := capture(t, w.router)
	for _, f := range families {
		_, a := open(t, w, "tcp", f.vip)
		web := netip.AddrPortFrom(f.server, 80)
		got := find(t, c, func(p *Packet) bool {
			return strings.HasPrefix(p.Flags, "SYN") && (p.Src == a.Source || p.Dst == a.Source)
		})
		want := []string{
			fmt.Sprintf("c0 in tcp %s > %s SYN ttl 64", a.Source, f.vip),
			fmt.Sprintf("s0 out tcp %s > %s SYN ttl 63", a.Source, web),
			fmt.Sprintf("s0 in tcp %s > %s SYN,ACK ttl 64", web, a.Source),
			fmt.Sprintf("c0 out tcp %s > %s SYN,ACK ttl 63", f.vip, a.Source),
		}
		if !slices.Equal(got, want) {
			t.Errorf("got  %s\nwant %s", strings.Join(got, "\n     "), strings.Join(want, "\n     "))
		}
	}
	if lost, err := c.Lost(); lost != 0 || err != nil {
		t.Errorf("%d lost, %v", lost, err)
	}
	frames := c.Packets()
	if slices.ContainsFunc(frames, func(f Frame) bool { return time.Since(f.At).Abs() > time.Hour }) {
		t.Error("a frame without a time stamp")
	}
	Must(t, c.Close())
	Must(t, c.Close())
	if len(c.Packets()) < len(frames) {
		t.Error("what was recorded is gone after Close")
	}
}

func TestICMPQuote(t *testing.T) {
	w := newWorld(t)
	c := capture(t, w.client)
	for _, f := range families {
		p := traffic.Probe{From: w.client, To: netip.AddrPortFrom(f.server, 81), Proto: "udp",
			Fences: []netip.Addr{f.gateway}}
		a := p.Do(Within(t))
		got := find(t, c, func(p *Packet) bool { return p.Quoted != nil && p.Quoted.Src == a.Source })
		proto, code := "icmp", "type 3 code 3"
		if f.server.Is6() {
			proto, code = "icmpv6", "type 1 code 4"
		}
		want := fmt.Sprintf("eth0 in %s %s > %s %s ttl 63 quotes [udp %s > %s ttl 63]", proto, f.server, f.client, code,
			a.Source, p.To)
		if len(got) != 1 || got[0] != want {
			t.Errorf("got  %q\nwant %s", got, want)
		}
	}
}

func TestPcapng(t *testing.T) {
	w := newWorld(t)
	serve(t, w)
	a, b := capture(t, w.client), capture(t, w.server)
	for _, f := range families {
		open(t, w, "udp", netip.AddrPortFrom(f.server, 80))
	}
	var file bytes.Buffer
	Must(t, WritePcapng(&file, a, b))
	in, err := pcapgo.NewNgReader(&file, pcapgo.NgReaderOptions{})
	Must(t, err)
	seen := map[string]int{}
	for {
		_, info, err := in.ReadPacketData()
		if err == io.EOF {
			break
		}
		Must(t, err)
		i, err := in.Interface(info.InterfaceIndex)
		Must(t, err)
		seen[i.Name]++
	}
	if len(seen) != 2 || seen["client/eth0"] < 4 || seen["server/eth0"] < 4 {
		t.Error(seen)
	}
	Must(t, WritePcapng(&file)) // nothing is a file too
	if _, err := pcapgo.NewNgReader(&file, pcapgo.NgReaderOptions{}); err != nil {
		t.Error(err)
	}
}

// Without offloads every frame is complete; with them, TCP over veth is not.
func TestDisableOffloads(t *testing.T) {
	w := newWorld(t)
	serve(t, w)
	f := families[0]
	pending := func() (n int, wrong error) {
		c := capture(t, w.client)
		p := traffic.Probe{From: w.client, To: netip.AddrPortFrom(f.server, 80), Proto: "tcp", Payload: 20000}
		if a := p.Do(Within(t)); a.Outcome != traffic.Reply {
			t.Fatal(a)
		}
		for _, frame := range c.Packets() {
			p, err := Decode(frame)
			if err != nil || p.Proto != "tcp" {
				continue
			}
			if frame.ChecksumPending || len(p.Raw) > 1500 {
				n++
			} else if err := p.VerifyChecksums(); err != nil {
				wrong = err
			}
		}
		return n, wrong
	}
	if n, wrong := pending(); n == 0 || wrong != nil {
		t.Errorf("with offloads: %d incomplete, %v", n, wrong)
	}
	Must(t, DisableOffloads(w.client, "eth0"))
	Must(t, DisableOffloads(w.server, "eth0"))
	if n, wrong := pending(); n > 0 || wrong != nil {
		t.Errorf("without offloads: %d incomplete, %v", n, wrong)
	}
	if DisableOffloads(w.client, "eth9") == nil || DisableOffloads(w.client, strings.Repeat("x", 40)) == nil {
		t.Error("no error for a device that is not there")
	}
}

// The packet inside a tunnel is decoded too, and its checksum is right without checksum offload.
func TestTunnel(t *testing.T) {
	w := newWorld(t)
	serve(t, w)
	f := families[0]
	vxlan := func(ns *netns.NS, device string, local, remote, inner netip.Addr) {
		l := &netlink.Vxlan{
			LinkAttrs: netlink.LinkAttrs{Name: "vx", HardwareAddr: []byte{2, 0, 0, 0, 0, inner.As4()[3]}},
			VxlanId:   1, SrcAddr: local.AsSlice(), Group: remote.AsSlice(), Port: 8472,
			VtepDevIndex: Link(t, ns, device).Attrs().Index,
		}
		Must(t, ns.Netlink().LinkAdd(l))
		Must(t, ns.Netlink().LinkSetUp(l))
		Address(t, ns, "vx", inner, 24)
	}
	vxlan(w.client, "eth0", f.client, f.server, addr("10.8.0.1"))
	vxlan(w.server, "eth0", f.server, f.client, addr("10.8.0.2"))
	Must(t, DisableOffloads(w.client, "vx"))
	c := capture(t, w.router)
	_, a := open(t, w, "udp", netip.MustParseAddrPort("10.8.0.2:80"))
	got := 0
	for _, frame := range c.Packets() {
		p, err := Decode(frame)
		if err != nil || p.Proto != "vxlan" || p.Innermost().Proto != "udp" {
			continue
		}
		inner := p.Innermost()
		if inner.Src == a.Source || inner.Dst == a.Source {
			got++
		}
		if p.Src.Addr() == f.client {
			if err := inner.VerifyChecksums(); err != nil {
				t.Error(err)
			}
		}
	}
	if got != 4 { // there and back, in and out
		t.Errorf("%d packets in the tunnel", got)
	}
}

func TestDecodeIP(t *testing.T) {
	v4 := &layers.IPv4{Version: 4, TTL: 9, SrcIP: addr("10.0.0.1").AsSlice(), DstIP: addr("10.0.0.2").AsSlice()}
	v6 := &layers.IPv6{Version: 6, HopLimit: 9, SrcIP: addr("fd00::1").AsSlice(), DstIP: addr("fd00::2").AsSlice()}
	with4 := func(p layers.IPProtocol) *layers.IPv4 { ip := *v4; ip.Protocol = p; return &ip }
	udp := &layers.UDP{SrcPort: 1, DstPort: 2}
	udp.SetNetworkLayerForChecksum(v4)
	fragment := with4(layers.IPProtocolUDP)
	fragment.FragOffset = 100
	hopByHop := []byte{17, 0, 1, 4, 0, 0, 0, 0, 0, 1, 0, 2, 0, 8, 0, 0} // an option header, then UDP without a checksum
	v6.NextHeader = layers.IPProtocolIPv6HopByHop
	for want, packet := range map[string][]gopacket.SerializableLayer{
		"udp 10.0.0.1:1 > 10.0.0.2:2 ttl 9": {with4(17), udp,
			gopacket.Payload("odd")},
		"ipip 10.0.0.1 > 10.0.0.2 ttl 9 carries [udp 10.0.0.1:1 > 10.0.0.2:2 ttl 9]": {with4(4), with4(17), udp},
		"udp 10.0.0.1 > 10.0.0.2 fragment ttl 9": {fragment,
			gopacket.Payload("12345678")},
		"89 10.0.0.1 > 10.0.0.2 ttl 9": {with4(89),
			gopacket.Payload("12345678")},
		"udp [fd00::1]:1 > [fd00::2]:2 ttl 9": {v6, gopacket.Payload(hopByHop)},
	} {
		buf := gopacket.NewSerializeBuffer()
		Must(t, gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, packet...))
		p, err := DecodeIP(append(buf.Bytes(), 0, 0, 0)) // a short frame is padded
		Must(t, err)
		if p.String() != want {
			t.Errorf("got %s, want %s", p, want)
		}
		if strings.HasPrefix(want, "udp 10.0.0.1:1") || strings.HasPrefix(want, "ipip") {
			Must(t, p.VerifyChecksums())
			p.Raw[len(p.Raw)-1] ^= 1 // the last byte of the innermost packet
			if p.VerifyChecksums() == nil {
				t.Errorf("%s: a changed packet has a right checksum", p)
			}
		}
		for n := range buf.Bytes() { // whatever is missing, it does not fall over
			DecodeIP(buf.Bytes()[:n])
		}
	}
}
