// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net/netip"
	"testing"
	"time"
)

// TestWhoSeesWhom asks receivers for the source address of what they got.
func TestWhoSeesWhom(t *testing.T) {
	t.Parallel()
	everyLab(t, 2, 2, func(t *testing.T, l *Lab) {
		n1, n2 := l.Node("n1"), l.Node("n2")
		p, near, far := l.Pod("n1-p1"), l.Pod("n1-p2"), l.Pod("n2-p1")
		for _, f := range l.Stack().Families() {
			spare := n2.Addrs()[len(n2.Addrs())/2:]
			for _, row := range []struct {
				what     string
				from, to *Host
				at, want netip.Addr
			}{
				{"pod to pod on its node", &p.Host, &near.Host, near.Addr(f), p.Addr(f)},
				{"pod to pod on another node", &p.Host, &far.Host, far.Addr(f), p.Addr(f)},
				{"pod to its node", &p.Host, &n1.Host, n1.Addr(f), p.Addr(f)},
				{"pod to another node", &p.Host, &n2.Host, n2.Addr(f), p.Addr(f)},
				{"pod to another node's second address", &p.Host, &n2.Host, pick(spare, f), p.Addr(f)},
				{"pod to client", &p.Host, l.Client(), l.Client().Addr(f), n1.Addr(f)},
				{"pod to router", &p.Host, l.Router(), l.Router().Addr(f), n1.Addr(f)},
				{"node to pod on it", &n1.Host, &p.Host, p.Addr(f), n1.EgressAddr(p.Addr(f))},
				{"node to pod on another", &n1.Host, &far.Host, far.Addr(f), n1.EgressAddr(far.Addr(f))},
				{"node to node", &n1.Host, &n2.Host, n2.Addr(f), n1.Addr(f)},
				{"node to client", &n1.Host, l.Client(), l.Client().Addr(f), n1.Addr(f)},
				{"client to node", l.Client(), &n1.Host, n1.Addr(f), l.Client().Addr(f)},
			} {
				if got := seenBy(t, row.from, row.to, row.at); got != row.want {
					t.Errorf("%s, %s: seen as %s, want %s", row.what, f, got, row.want)
				}
			}
		}
	})
}

func pick(addrs []netip.Addr, f Family) netip.Addr {
	for _, a := range addrs {
		if FamilyOf(a) == f {
			return a
		}
	}
	return netip.Addr{}
}

// seenBy sends a datagram and returns the source address that the receiver reads.
func seenBy(t *testing.T, from, to *Host, at netip.Addr) netip.Addr {
	t.Helper()
	server, err := to.ListenPacket(t.Context(), "udp", netip.AddrPortFrom(at, 0).String())
	if err != nil {
		t.Fatalf("%s: %v", to.Name(), err)
	}
	defer server.Close()
	port := netip.MustParseAddrPort(server.LocalAddr().String()).Port()
	client, err := from.Dial(t.Context(), "udp", netip.AddrPort{}, netip.AddrPortFrom(at, port))
	if err != nil {
		t.Fatalf("%s: %v", from.Name(), err)
	}
	defer client.Close()
	if _, err := client.Write([]byte("hello")); err != nil {
		t.Fatalf("%s: %v", from.Name(), err)
	}
	if err := server.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	_, peer, err := server.ReadFrom(make([]byte, 16))
	if err != nil {
		t.Errorf("%s: nothing from %s: %v", to.Name(), from.Name(), err)
		return netip.Addr{}
	}
	return netip.MustParseAddrPort(peer.String()).Addr().Unmap()
}

// The address of a tunnel is one of the node's pod range, so that what is masqueraded into the tunnel finds back.
func TestEgressAddr(t *testing.T) {
	t.Parallel()
	everyLab(t, 2, 1, func(t *testing.T, l *Lab) {
		n1 := l.Node("n1")
		kind, _ := l.Overlay()
		for _, f := range l.Stack().Families() {
			want := map[netip.Addr]netip.Addr{
				l.Client().Addr(f):        n1.Addr(f),
				l.Pod("n2-p1").Addr(f):    podAddr(f, 1, tunnelPod),
				l.Node("n2").Addr(f):      n1.Addr(f),
				l.Pod("n1-p1").Addr(f):    podAddr(f, 1, gatewayPod),
				netip.Addr{}.WithZone(""): {},
			}
			if kind == Direct {
				want[l.Pod("n2-p1").Addr(f)] = n1.Addr(f)
			}
			if l.Topology().PodNetwork == Routed { // the pod's device has no address: which one it is is the kernel's choice
				delete(want, l.Pod("n1-p1").Addr(f))
				if got := n1.EgressAddr(l.Pod("n1-p1").Addr(f)); FamilyOf(got) != f || !got.IsValid() {
					t.Errorf("EgressAddr of a pod of the node: %v, want some %s address", got, f)
				}
			}
			for dst, want := range want {
				if got := n1.EgressAddr(dst); got != want {
					t.Errorf("EgressAddr(%s) = %s, want %s", dst, got, want)
				}
			}
		}
	})
}
