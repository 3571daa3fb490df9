// SPDX-License-Identifier: Apache-2.0

// Package nstest builds small networks for tests: namespaces that end with the test, and what belongs into them.
package nstest

import (
	"context"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/lab/netns"
)

// Must ends the test with an error, if there is one.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Within returns a context for what must happen: a minute, or more where programs start slowly.
func Within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := machine.WithTimeout(context.Background(), machine.Limit(time.Minute))
	t.Cleanup(cancel)
	return ctx
}

// NewNS makes a namespace that ends with the test. Its loopback device is down.
func NewNS(t testing.TB, name string, settings ...netns.Setting) *netns.NS {
	t.Helper()
	ns, err := netns.New(name, settings...)
	Must(t, err)
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}

// Link returns a device of a namespace.
func Link(t testing.TB, ns *netns.NS, name string) netlink.Link {
	t.Helper()
	l, err := ns.Netlink().LinkByName(name)
	Must(t, err)
	return l
}

// Up sets a device up.
func Up(t testing.TB, ns *netns.NS, name string) {
	t.Helper()
	Must(t, ns.Netlink().LinkSetUp(Link(t, ns, name)))
}

// Veth makes a pair of devices with an end in each namespace, and sets both up.
func Veth(t testing.TB, a *netns.NS, aName string, b *netns.NS, bName string) {
	t.Helper()
	Must(t, a.Netlink().LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: aName}, PeerName: bName, PeerNamespace: netlink.NsFd(b.Fd()),
	}))
	Up(t, a, aName)
	Up(t, b, bName)
}

// Address gives a device an address, which is usable at once: there is no duplicate address detection.
func Address(t testing.TB, ns *netns.NS, device string, a netip.Addr, length int) {
	t.Helper()
	ip, err := netlink.ParseAddr(netip.PrefixFrom(a, length).String())
	Must(t, err)
	if a.Is6() {
		ip.Flags = unix.IFA_F_NODAD
	}
	Must(t, ns.Netlink().AddrAdd(Link(t, ns, device), ip))
}

// Route sends what is for a prefix to a gateway.
func Route(t testing.TB, ns *netns.NS, dst netip.Addr, length int, via netip.Addr) {
	t.Helper()
	to := &net.IPNet{IP: dst.AsSlice(), Mask: net.CIDRMask(length, dst.BitLen())}
	Must(t, ns.Netlink().RouteAdd(&netlink.Route{Dst: to, Gw: via.AsSlice()}))
}

// NFT runs nft with commands in a namespace.
func NFT(t testing.TB, ns *netns.NS, commands string) {
	t.Helper()
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(commands)
	out := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := ns.Run(cmd); err != nil {
		t.Fatalf("nft: %v\n%s\n%s", err, commands, out)
	}
}
