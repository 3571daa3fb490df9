// SPDX-License-Identifier: Apache-2.0

package nodeaddr

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

// TestWatcher: the watcher reports added and removed addresses at once, on all devices but one, for any number of
// addresses.
func TestWatcher(t *testing.T) {
	ns, err := netns.New("n1")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	for f, a := range map[lab.Family][]string{
		lab.V4: {"192.0.2.1", "192.0.2.2", "198.51.100.1"}, lab.V6: {"2001:db8::1", "2001:db8::2", "2001:db8:51::1"},
	} {
		t.Run(f.String(), func(t *testing.T) {
			w := NewWatcher(ns, f, "ours"+f.String())
			defer w.Close()
			before := told(t, w)
			nic := bridge(t, ns, "nic"+f.String())
			add(t, ns, nic, a[0])
			same(t, told(t, w), append(before, addrs(a[0])...))
			ours := bridge(t, ns, "ours"+f.String())
			add(t, ns, ours, a[2])
			same(t, told(t, w), append(before, addrs(a[0])...))
			for range 5000 { // more than a socket's buffer holds
				add(t, ns, ours, a[1])
				remove(t, ns, ours, a[1])
			}
			add(t, ns, nic, a[1])
			same(t, told(t, w), append(before, addrs(a[0], a[1])...))
			remove(t, ns, nic, a[0])
			same(t, told(t, w), append(before, addrs(a[1])...))
			if w.changed() {
				t.Error("changed without a change")
			}
		})
	}
}

func told(t *testing.T, w *Watcher) []netip.Addr {
	t.Helper()
	all, err := w.Local()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(all)
}

func same(t *testing.T, got, want []netip.Addr) {
	t.Helper()
	slices.SortFunc(want, netip.Addr.Compare)
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func bridge(t *testing.T, ns *netns.NS, name string) netlink.Link {
	t.Helper()
	if err := ns.Netlink().LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil {
		t.Fatal(err)
	}
	l, err := ns.Netlink().LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func add(t *testing.T, ns *netns.NS, l netlink.Link, a string) {
	t.Helper()
	if err := ns.Netlink().AddrAdd(l, addr(a)); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, ns *netns.NS, l netlink.Link, a string) {
	t.Helper()
	if err := ns.Netlink().AddrDel(l, addr(a)); err != nil {
		t.Fatal(err)
	}
}

func addr(a string) *netlink.Addr {
	return &netlink.Addr{IPNet: netlink.NewIPNet(netip.MustParseAddr(a).AsSlice())}
}
