// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/lab/nstest"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

var (
	nic  = Dev{Name: "eth0", Index: 100}
	port = Dev{Name: "port", Index: 200}
	br   = Dev{Name: "br0", Index: 300}
	macA = MAC{2, 0, 0, 0, 0, 0xa}
	macB = MAC{2, 0, 0, 0, 0, 0xb}
)

func must(t *testing.T, ns *netns.NS, ops ...Op) {
	t.Helper()
	if err := Apply(ns, ops...); err != nil {
		t.Fatal(err)
	}
}

// pair returns two namespaces with a wire between them, both ends down.
func pair(t *testing.T) (a, b *netns.NS) {
	t.Helper()
	a, b = nstest.NewNS(t, "a"), nstest.NewNS(t, "b")
	must(t, a, Veth{Dev: nic, MAC: macA, MTU: 1400, Peer: Peer{Dev: port, MAC: macB, NS: b}})
	return a, b
}

func device(t *testing.T, ns *netns.NS, d Dev) netlink.Link {
	t.Helper()
	l, err := ns.Netlink().LinkByName(d.Name)
	if err != nil {
		t.Fatalf("%s: %s: %v", ns.Name(), d.Name, err)
	}
	if l.Attrs().Index != d.Index {
		t.Errorf("%s: %s has index %d, want %d", ns.Name(), d.Name, l.Attrs().Index, d.Index)
	}
	return l
}

func TestVeth(t *testing.T) {
	a, b := pair(t)
	for _, end := range []struct {
		ns  *netns.NS
		dev Dev
		mac MAC
	}{{a, nic, macA}, {b, port, macB}} {
		attrs := device(t, end.ns, end.dev).Attrs()
		if attrs.MTU != 1400 || attrs.HardwareAddr.String() != end.mac.String() || attrs.RawFlags&unix.IFF_UP != 0 ||
			attrs.NumTxQueues != 1 {
			t.Errorf("%s: mtu %d, MAC %s, flags %x, %d queues", end.dev.Name, attrs.MTU, attrs.HardwareAddr, attrs.RawFlags,
				attrs.NumTxQueues)
		}
	}
}

func TestReadyWaitsForCarrier(t *testing.T) {
	a, b := pair(t)
	must(t, a, Up{nic})
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	err := Ready(cancelled, a, Carries{nic})
	if want := "a: until eth0 carries packets: context canceled"; err == nil || err.Error() != want {
		t.Errorf("without a carrier: %v, want %s", err, want)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	waiting := make(chan error, 1)
	go func() { waiting <- Ready(ctx, a, Carries{nic}) }()
	must(t, b, Up{port})
	if err := errors.Join(<-waiting, Ready(ctx, b, Carries{port})); err != nil {
		t.Error(err)
	}
	if err := Ready(ctx, a, Carries{Dev{Name: "no", Index: 7}}); !errors.Is(err, unix.ENODEV) {
		t.Errorf("a device that is not there: %v, want %v", err, unix.ENODEV)
	}
}

func TestReadyWaitsForIPv6(t *testing.T) {
	a, _ := pair(t)
	addr := netip.MustParseAddr("fd00::1")
	must(t, a, Up{nic}, Addr{Dev: nic, Prefix: netip.PrefixFrom(addr, 64)})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := Ready(ctx, a, Local{nic, addr}); err != nil {
		t.Error(err)
	}
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Ready(short, a, Local{nic, netip.MustParseAddr("fd00::2")}); !errors.Is(err, context.Canceled) {
		t.Errorf("an address that is not there: %v, want %v", err, context.Canceled)
	}
}

func TestBridge(t *testing.T) {
	_, b := pair(t)
	must(t, b, Bridge{Dev: br, MAC: macA, MTU: 1400}, Port{Dev: port, Bridge: br}, Hairpin{port})
	if l := device(t, b, port); l.Attrs().MasterIndex != br.Index || l.Attrs().RawFlags&unix.IFF_UP == 0 {
		t.Errorf("the port's master is %d, flags %x", l.Attrs().MasterIndex, l.Attrs().RawFlags)
	}
	l := device(t, b, br)
	if snooping := l.(*netlink.Bridge).MulticastSnooping; snooping == nil || *snooping ||
		l.Attrs().HardwareAddr.String() != macA.String() {
		t.Errorf("multicast snooping %v, MAC %s", snooping, l.Attrs().HardwareAddr)
	}
	info, err := b.Netlink().LinkGetProtinfo(device(t, b, port))
	if err != nil || !info.Hairpin {
		t.Errorf("hairpin: %+v, %v", info, err)
	}
}

func TestVXLAN(t *testing.T) {
	a := nstest.NewNS(t, "a")
	if err := Apply(a, VXLAN{Dev: nic, MAC: macA, MTU: 1400, ID: 7, Port: 8472,
		Local: netip.MustParseAddr("192.0.2.1")}); errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	v := device(t, a, nic).(*netlink.Vxlan)
	if v.VxlanId != 7 || v.Port != 8472 || v.Learning || v.SrcAddr.String() != "192.0.2.1" || v.MTU != 1400 {
		t.Errorf("%+v", v)
	}
	forward := Forward{MAC: macB, To: netip.MustParseAddr("192.0.2.2"), Dev: nic}
	must(t, a, forward)
	entries := func() (found []string) {
		list, err := a.Netlink().NeighList(nic.Index, unix.AF_BRIDGE)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range list {
			found = append(found, fmt.Sprintf("%s %s", n.HardwareAddr, n.IP))
		}
		return found
	}
	if got := entries(); !slices.Equal(got, []string{"02:00:00:00:00:0b 192.0.2.2"}) {
		t.Errorf("forwarding table %q", got)
	}
	must(t, a, Remove(forward))
	if got := entries(); len(got) != 0 {
		t.Errorf("forwarding table after removal %q", got)
	}
}

func TestRoutesAndNeighbours(t *testing.T) {
	a, _ := pair(t)
	ops := []Op{
		Route{To: netip.MustParsePrefix("10.2.0.0/16"), Via: netip.MustParseAddr("10.0.0.2"), Dev: nic},
		Route{To: netip.MustParsePrefix("10.3.0.1/32"), Dev: nic},
		Route{To: netip.MustParsePrefix("10.4.0.0/16"), Via: netip.MustParseAddr("192.0.2.9"), Dev: nic, OnLink: true},
		Route{To: netip.MustParsePrefix("10.5.0.0/16"), Blackhole: true},
		Route{To: netip.MustParsePrefix("fd02::/64"), Via: netip.MustParseAddr("fd00::2"), Dev: nic},
		Neighbour{Addr: netip.MustParseAddr("10.0.0.2"), MAC: macB, Dev: nic},
		Neighbour{Addr: netip.MustParseAddr("fd00::2"), MAC: macB, Dev: nic},
	}
	must(t, a, Up{nic}, Addr{Dev: nic, Prefix: netip.MustParsePrefix("10.0.0.1/24")},
		Addr{Dev: nic, Prefix: netip.MustParsePrefix("fd00::1/64")})
	must(t, a, ops...)
	routes := func() int {
		found := 0
		for _, f := range []int{unix.AF_INET, unix.AF_INET6} {
			list, err := a.Netlink().RouteListFiltered(f, &netlink.Route{Protocol: unix.RTPROT_STATIC},
				netlink.RT_FILTER_PROTOCOL)
			if err != nil {
				t.Fatal(err)
			}
			found += len(list)
		}
		list, err := a.Netlink().NeighList(nic.Index, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range list {
			if n.State != unix.NUD_PERMANENT {
				continue
			}
			found++
			if router := n.Flags&unix.NTF_ROUTER != 0; router != (n.IP.To4() == nil) {
				t.Errorf("neighbour %s is marked as a router: %t; the kernel needs it for IPv6", n.IP, router)
			}
		}
		return found
	}
	if got := routes(); got != len(ops) {
		t.Errorf("%d routes and neighbours are there, want %d", got, len(ops))
	}
	for i, op := range ops {
		ops[i] = Remove(op)
	}
	must(t, a, ops...)
	if got := routes(); got != 0 {
		t.Errorf("%d routes and neighbours are left", got)
	}
}

func TestErrorsNameTheChange(t *testing.T) {
	a := nstest.NewNS(t, "n1")
	for _, row := range []struct {
		op   Op
		errs error
		want string
	}{
		{Up{Dev{"no", 9}}, unix.ENODEV, "n1: no up: "},
		{Route{To: netip.MustParsePrefix("10.2.0.0/16"), Via: netip.MustParseAddr("10.0.0.2"), Dev: Loopback},
			unix.ENETUNREACH, "n1: route 10.2.0.0/16 via 10.0.0.2 dev lo: "},
		{Remove(Neighbour{Addr: netip.MustParseAddr("10.0.0.2"), MAC: macA, Dev: Loopback}), unix.ENOENT,
			"n1: remove neighbour 10.0.0.2 at 02:00:00:00:00:0a dev lo: "},
		{Delete{nic}, unix.ENODEV, "n1: delete eth0: "},
	} {
		// The refused change is neither the first nor the last.
		err := Apply(a, Up{Loopback}, row.op, Up{Loopback})
		if !errors.Is(err, row.errs) || !strings.HasPrefix(fmt.Sprint(err), row.want) {
			t.Errorf("got %v, want %s... %v", err, row.want, row.errs)
		}
	}
}

// A list that is too long for one request becomes several, and errors still name the right change.
func TestManyChanges(t *testing.T) {
	a, _ := pair(t)
	must(t, a, Up{nic}, Addr{Dev: nic, Prefix: netip.MustParsePrefix("10.0.0.1/8")})
	var ops []Op
	for i := range 4000 {
		ops = append(ops, Neighbour{Addr: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), MAC: macB, Dev: nic})
	}
	ops[3500] = Up{Dev{"no", 9}}
	if err := Apply(a, ops...); err == nil || !strings.HasPrefix(err.Error(), "a: no up: ") {
		t.Errorf("got %v, want an error about the device no", err)
	}
	list, err := a.Netlink().NeighList(nic.Index, unix.AF_INET)
	if err != nil || len(list) < 3500 {
		t.Errorf("%d neighbours, %v; want at least the 3500 before the refused change", len(list), err)
	}
}

func TestEnsure(t *testing.T) {
	a := nstest.NewNS(t, "a")
	bridge := Bridge{Dev: br, MAC: macA, MTU: 1500}
	for range 2 {
		if d, err := Ensure(a, br, bridge); d != br || err != nil {
			t.Errorf("Ensure = %v, %v; want %v", d, err, br)
		}
	}
	other := bridge
	other.Index = 999
	if d, err := Ensure(a, other.Dev, other); d != br || err != nil {
		t.Errorf("Ensure of a name that is taken = %v, %v; want the device that is there, %v", d, err, br)
	}
}

func TestLinkLocal(t *testing.T) {
	if got, want := (MAC{0xee, 0xee, 0xee, 0xee, 0xee, 0xee}).LinkLocal().String(),
		"fe80::ecee:eeff:feee:eeee"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestMasquerade compares with what nft makes of it; that the rules do what they say is for the tests of labs.
func TestMasquerade(t *testing.T) {
	nft, err := exec.LookPath("nft")
	if err != nil {
		t.Fatal(err, ": apt-get install nftables")
	}
	list := func(ns *netns.NS) string {
		t.Helper()
		cmd := exec.Command(nft, "-y", "list", "ruleset")
		var out, problem strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &problem
		if err := ns.Run(cmd); err != nil {
			t.Fatalf("%v: %s", err, problem.String())
		}
		return out.String()
	}
	a := nstest.NewNS(t, "a")
	m := Masquerade{
		Pods:    []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00:10:244:1::/64")},
		Cluster: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/48")},
		Nodes:   []netip.Addr{netip.MustParseAddr("192.168.7.11"), netip.MustParseAddr("fd00:7::11")},
	}
	if err := m.Install(a); err != nil {
		t.Fatal(err)
	}
	got := list(a)
	for _, want := range []string{
		"type nat hook postrouting priority 110; policy accept;",
		"ip saddr 10.244.1.0/24 ip daddr != 10.244.0.0/16 ip daddr != @nodes4 masquerade",
		"ip6 saddr fd00:10:244:1::/64 ip6 daddr != fd00:10:244::/48 ip6 daddr != @nodes6 masquerade",
		"elements = { 192.168.7.11 }",
		"elements = { fd00:7::11 }",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	node := []netip.Addr{netip.MustParseAddr("192.168.7.12"), netip.MustParseAddr("fd00:7::12")}
	if err := ExemptFromMasquerade(a, node...); err != nil {
		t.Fatal(err)
	}
	if now := list(a); !strings.Contains(now, "192.168.7.12") || !strings.Contains(now, "fd00:7::12") {
		t.Errorf("the exempted node is missing in\n%s", now)
	}
	if err := EndMasqueradeExemption(a, node...); err != nil {
		t.Fatal(err)
	}
	if now := list(a); now != got {
		t.Errorf("after the opposite:\n%s\nbefore:\n%s", now, got)
	}
	if err := EndMasqueradeExemption(a, node...); !errors.Is(err, unix.ENOENT) {
		t.Errorf("an address that is not in the set: %v, want %v", err, unix.ENOENT)
	}
}

// A disabled port stays in its bridge, which has forgotten who was behind it and sends nothing there.
func TestDisable(t *testing.T) {
	a, b := pair(t)
	behind := MAC{2, 0, 0, 0, 0, 0xc}
	must(t, b, Bridge{Dev: br, MAC: MAC{2, 0, 0, 0, 0, 0xd}, MTU: 1400}, Port{port, br})
	must(t, a, Up{nic})
	if err := Ready(t.Context(), b, Carries{port}); err != nil { // until then the bridge has not put the port into use
		t.Fatal(err)
	}
	if err := b.Netlink().NeighAppend(&netlink.Neigh{ // as if a frame had come from there
		LinkIndex: port.Index, Family: unix.AF_BRIDGE, State: netlink.NUD_REACHABLE, Flags: netlink.NTF_MASTER,
		HardwareAddr: behind[:],
	}); err != nil {
		t.Fatal(err)
	}
	known := func() bool {
		entries, err := netns.List(func() ([]netlink.Neigh, error) {
			return b.Netlink().NeighList(port.Index,
				unix.AF_BRIDGE)
		})
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(entries, func(n netlink.Neigh) bool { return n.HardwareAddr.String() == behind.String() })
	}
	if !known() {
		t.Fatal("the bridge does not know who is behind its port")
	}
	must(t, b, Disable{port})
	if known() {
		t.Error("the bridge still knows who was behind its port")
	}
	cmd := exec.Command("ip", "-d", "link", "show", "dev", port.Name)
	var out strings.Builder
	cmd.Stdout = &out
	if err := b.Run(cmd); err != nil {
		t.Fatal(err, ": apt-get install iproute2")
	}
	for _, want := range []string{"master br0", "bridge_slave state disabled", ",UP"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the port is not %q:\n%s", want, out.String())
		}
	}
}

// A device that is set down is down, and so are its routes; its other end stays up, and has nobody to talk to.
func TestDown(t *testing.T) {
	a, b := pair(t)
	route := Route{To: netip.MustParsePrefix("10.9.9.0/24"), Dev: port}
	must(t, a, Up{nic})
	must(t, b, Up{port}, route, Down{port})
	if flags := device(t, b, port).Attrs().RawFlags; flags&unix.IFF_UP != 0 {
		t.Errorf("it is up (flags %x)", flags)
	}
	if flags := device(t, a, nic).Attrs().RawFlags; flags&unix.IFF_UP == 0 || flags&unix.IFF_LOWER_UP != 0 {
		t.Errorf("its other end has the flags %x, want it up without a carrier", flags)
	}
	if err := Apply(b, Remove(route)); !errors.Is(err, unix.ESRCH) {
		t.Errorf("its route: %v, want %v", err, unix.ESRCH)
	}
	must(t, b, Up{port}, route)
	if flags := device(t, a, nic).Attrs().RawFlags; flags&unix.IFF_LOWER_UP == 0 {
		t.Errorf("up again, its other end has no carrier (flags %x)", flags)
	}
}
