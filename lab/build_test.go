// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

// patience is how long a packet may take before it counts as lost: far more than the slowest machine needs.
const patience = 2 * time.Minute

// grid returns a topology of so many nodes n1, n2... with so many pods n1-p1, n1-p2... each.
func grid(nodes, pods int) Topology {
	var t Topology
	for i := 1; i <= nodes; i++ {
		n := NodeSpec{Name: fmt.Sprintf("n%d", i)}
		for j := 1; j <= pods; j++ {
			n.Pods = append(n.Pods, PodSpec{Name: fmt.Sprintf("n%d-p%d", i, j)})
		}
		t.Nodes = append(t.Nodes, n)
	}
	return t
}

// build builds a lab for the length of a test.
func build(t *testing.T, topology Topology) *Lab {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	l, err := Build(ctx, topology)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// ping expects one answer to one packet. How long it takes is what "make bench" measures: in an emulated machine with
// other things to do, a second says nothing.
func ping(t *testing.T, from *Host, to netip.Addr, size int) {
	t.Helper()
	got, err := pingOnce(t, from, to, size)
	switch {
	case err != nil: // one lost packet is enough to wait for
		t.Fatal(err)
	case !got.reply:
		t.Errorf("%s: ping %s: %v", from.Name(), to, got)
	}
}

func pingOnce(t *testing.T, from *Host, to netip.Addr, size int) (pong, error) {
	t.Helper()
	p, err := newPinger(from.NS)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return p.ping(ctx, to, size)
}

// pingAll pings every address of every host in to.
func pingAll(t *testing.T, from *Host, to ...*Host) {
	t.Helper()
	for _, h := range to {
		for _, a := range h.Addrs() {
			ping(t, from, a, 64)
		}
	}
}

func podHosts(l *Lab) []*Host {
	var out []*Host
	for _, p := range l.Pods() {
		out = append(out, &p.Host)
	}
	return out
}

func nodeHosts(l *Lab) []*Host {
	var out []*Host
	for _, n := range l.Nodes() {
		out = append(out, &n.Host)
	}
	return out
}

// everyLab runs a test on each combination of stack, pod network and overlay that this kernel can do. Combinations it
// cannot do are skipped by name.
func everyLab(t *testing.T, nodes, pods int, test func(t *testing.T, l *Lab)) {
	for _, stack := range []Stack{IPv4, IPv6, Dual} {
		for _, network := range []PodNetwork{Bridge, Routed} {
			for _, o := range []Overlay{IPIP, VXLAN, Direct} {
				t.Run(fmt.Sprintf("%s/%s/%s", stack, network, o), func(t *testing.T) {
					t.Parallel()
					if _, _, err := chooseOverlay(o, stack); err != nil {
						t.Skip(err)
					}
					if err := bridgePossible(t); err != nil && network == Bridge {
						t.Skip(err)
					}
					topology := grid(nodes, pods)
					topology.Stack, topology.PodNetwork, topology.Overlay = stack, network, o
					test(t, build(t, topology))
				})
			}
		}
	}
}

func bridgePossible(t *testing.T) error {
	t.Helper()
	ns, err := netns.New("probe")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	return bridgeFilter(ns)
}

func TestFirstPacketsArrive(t *testing.T) {
	t.Parallel()
	everyLab(t, 3, 2, func(t *testing.T, l *Lab) {
		for _, from := range podHosts(l) {
			pingAll(t, from, podHosts(l)...)
			pingAll(t, from, nodeHosts(l)...)
			pingAll(t, from, l.Router(), l.Client())
		}
		for _, from := range nodeHosts(l) {
			pingAll(t, from, podHosts(l)...)
			pingAll(t, from, nodeHosts(l)...)
			pingAll(t, from, l.Router(), l.Client())
		}
		for _, from := range []*Host{l.Router(), l.Client()} {
			pingAll(t, from, nodeHosts(l)...)
			pingAll(t, from, l.Router(), l.Client())
		}
	})
}

// The path that was idle longest is the first to be used: labs follow each other at once, while the kernel is still
// busy taking the last ones apart.
func TestFreshLabs(t *testing.T) {
	t.Parallel()
	for range 30 {
		topology := grid(2, 1)
		topology.Stack = Dual
		l := build(t, topology)
		pingAll(t, &l.Pod("n1-p1").Host, &l.Pod("n2-p1").Host)
		pingAll(t, &l.Pod("n2-p1").Host, l.Client())
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Both ends are asked: the sender's kernel must let a packet of the full size go, and the path must carry it.
func TestPathsCarryFullPackets(t *testing.T) {
	t.Parallel()
	everyLab(t, 2, 1, func(t *testing.T, l *Lab) {
		a, b := l.Pod("n1-p1"), l.Pod("n2-p1")
		for _, f := range l.Stack().Families() {
			header := 20
			if f == V6 {
				header = 40
			}
			ping(t, &a.Host, b.Addr(f), l.overlay.mtu(l.Stack())-header)
			if _, err := pingOnce(t, &a.Host, b.Addr(f), l.overlay.mtu(l.Stack())-header+1); !errors.Is(err, unix.EMSGSIZE) {
				t.Errorf("a byte more than fits the path: %v, want %v", err, unix.EMSGSIZE)
			}
			ping(t, &a.Host, l.Client().Addr(f), l.overlay.mtu(l.Stack())-header)
			ping(t, l.Client(), l.Node("n1").Addr(f), underlayMTU-header)
		}
		// A tunnel that leaves the pods too much gets their packets across all the same, in fragments.
		for _, n := range l.Nodes() {
			if got := fragments(t, &n.Host); got != 0 {
				t.Errorf("%s made %d fragments", n.Name(), got)
			}
		}
	})
}

// fragments returns how many fragments a host has made of packets that were too large, of both families.
func fragments(t *testing.T, h *Host) int {
	t.Helper()
	var v4, v6 []byte
	err := h.Do(func() (err error) {
		v4, err = os.ReadFile("/proc/thread-self/net/snmp")
		v6, _ = os.ReadFile("/proc/thread-self/net/snmp6")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	names, values := []string{}, []string{}
	for line := range strings.Lines(string(v4)) { // a line of names, then one of values, for each protocol
		if fields := strings.Fields(line); fields[0] != "Ip:" {
			continue
		} else if len(names) == 0 {
			names = fields
		} else {
			values = fields
		}
	}
	for line := range strings.Lines(string(v6)) {
		fields := strings.Fields(line)
		names, values = append(names, fields[0]), append(values, fields[1])
	}
	sum := 0
	for i, name := range names {
		if name == "FragCreates" || name == "Ip6FragCreates" {
			n, err := strconv.Atoi(values[i])
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}

func TestOverlaysLeaveAllTheyCan(t *testing.T) {
	for _, row := range []struct {
		o     overlay
		stack Stack
		want  int
	}{
		{ipip{}, IPv4, 1480}, {ipip{}, IPv6, 1460}, {ipip{}, Dual, 1460},
		{vxlan{}, IPv4, 1450}, {vxlan{}, IPv6, 1430}, {vxlan{}, Dual, 1450},
		{direct{}, IPv4, 1500}, {direct{}, IPv6, 1500}, {direct{}, Dual, 1500},
	} {
		if got := row.o.mtu(row.stack); got != row.want {
			t.Errorf("%s, stack %s: %d, want %d", row.o.kind(), row.stack, got, row.want)
		}
	}
}

func TestClientCannotReachPods(t *testing.T) {
	t.Parallel()
	everyLab(t, 1, 1, func(t *testing.T, l *Lab) {
		for _, a := range l.Pod("n1-p1").Addrs() {
			got, err := pingOnce(t, l.Client(), a, 64)
			wantType := byte(3) // destination unreachable
			if a.Is6() {
				wantType = 1
			}
			if err != nil || got.reply || got.typ != wantType || got.code != 0 {
				t.Errorf("client: ping %s: got %v, %v; want network unreachable", a, got, err)
			}
		}
	})
}
