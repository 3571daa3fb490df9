// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

func TestConnectionsOfIPVSAreRead(t *testing.T) {
	var got []string
	for _, c := range parseConnections(`Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData
TCP C0A807C9 C5AB 0A60000A 0050 0AF40202 1F90 ESTABLISHED     896
UDP fd00:0007:0000:0000:0000:0000:0000:0201 C5AB fd00:0010:0096:0000:0000:0000:0000:000a 0035 fd00:0010:0244:0002:0000:0000:0000:0002 14B4 UDP             299
`) {
		got = append(got, c.String())
	}
	want := []string{
		"tcp 192.168.7.201:50603 -> 10.96.0.10:80 => 10.244.2.2:8080 ESTABLISHED",
		"udp [fd00:7::201]:50603 -> [fd00:10:96::a]:53 => [fd00:10:244:2::2]:5300 UDP",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A pod is called as its address is, whether the trace has looked into it or not.
func TestReceivers(t *testing.T) {
	at := netip.MustParseAddrPort("10.244.1.2:80")
	j := judge{
		Traced: &Traced{Places: []Place{{Name: "x/a", Kind: "pod"}, {Name: "n1", Kind: "node"}}},
		names:  map[netip.Addr]string{at.Addr(): "a"},
	}
	for _, c := range []struct{ place, direction, want string }{
		{"x/a", "in", "a"}, {"n1", "out", "a"}, {"n1", "in", "n1"}, {"x/b", "in", "x/b"},
	} {
		step := Step{Place: c.place, Direction: c.direction, Device: "eth0", Before: Tuple{Dst: at}}
		if got := j.receiver(&Walk{Steps: []Step{step}}); got != c.want {
			t.Errorf("after a device %s of %s: %s, want %s", c.direction, c.place, got, c.want)
		}
	}
}

func TestMartians(t *testing.T) {
	j := judge{Traced: &Traced{Places: []Place{{Name: "n1", Devices: []Device{
		{Name: "eth0", Addresses: []netip.Prefix{netip.MustParsePrefix("192.168.7.11/24")}},
	}}}}}
	for _, c := range []struct{ src, dst, want string }{
		{"192.168.7.201", "192.168.7.11", ""},
		{"192.168.7.11", "10.96.0.1", "192.168.7.11, an address of n1 itself (martian source)"},
		{"127.0.0.1", "192.168.7.11", "127.0.0.1 is no source"},
		{"224.0.0.1", "192.168.7.11", "224.0.0.1 is no source"},
		{"192.168.7.201", "127.0.0.1", "127.0.0.1 is no destination outside of a machine"},
	} {
		at := func(a string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(a), 80) }
		got := j.martian("n1", Tuple{Src: at(c.src), Dst: at(c.dst)})
		if !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s to %s: %q, want %q", c.src, c.dst, got, c.want)
		}
	}
}
