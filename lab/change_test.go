// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func addPod(t *testing.T, l *Lab, node, name string) *Pod {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p, err := l.AddPod(ctx, node, PodSpec{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAddPod(t *testing.T) {
	t.Parallel()
	everyLab(t, 2, 1, func(t *testing.T, l *Lab) {
		p := addPod(t, l, "n1", "shop/web-1")
		if l.Pod("shop/web-1") != p || p.Node() != l.Node("n1") {
			t.Errorf("the lab knows %v, on %s", l.Pod("shop/web-1"), p.Node().Name())
		}
		others := append(podHosts(l), nodeHosts(l)...)
		pingAll(t, &p.Host, append(others, l.Client())...)
		for _, h := range others {
			pingAll(t, h, &p.Host)
		}
	})
}

// A node may start without pods: its bridge then has no port, and is ready all the same.
func TestAddFirstPod(t *testing.T) {
	t.Parallel()
	everyLab(t, 2, 0, func(t *testing.T, l *Lab) {
		a, b := addPod(t, l, "n1", "a"), addPod(t, l, "n2", "b")
		pingAll(t, &a.Host, &b.Host)
		pingAll(t, &b.Host, &a.Host)
	})
}

func TestRemovedPodsAddressIsFree(t *testing.T) {
	t.Parallel()
	everyLab(t, 2, 3, func(t *testing.T, l *Lab) {
		old := l.Pod("n1-p2")
		addr := old.Addrs()[0]
		device := portIndex(t, old)
		pingAll(t, &l.Pod("n1-p1").Host, &old.Host)
		pingAll(t, &l.Pod("n2-p1").Host, &old.Host)
		held, err := old.Socket(unix.AF_INET6, unix.SOCK_DGRAM, 0) // keeps the namespace, as a server would
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(held)
		if err := l.RemovePod("n1-p2"); err != nil {
			t.Fatal(err)
		}
		if l.Pod("n1-p2") != nil {
			t.Error("the lab still knows the pod")
		}
		if err := l.RemovePod("n1-p2"); err == nil {
			t.Error("the pod could be removed twice")
		}
		fresh := addPod(t, l, "n1", "n1-p2")
		if fresh.Addrs()[0] != addr {
			t.Errorf("the new pod has %s, want the free %s", fresh.Addrs()[0], addr)
		}
		// The kernel may still be forgetting the masqueraded connections of the old one's device.
		if portIndex(t, fresh) == device {
			t.Errorf("the new pod's device has the index of the old one's, %d", device)
		}
		for _, from := range append(podHosts(l), nodeHosts(l)...) {
			pingAll(t, from, &fresh.Host)
		}
		pingAll(t, &fresh.Host, append(podHosts(l), nodeHosts(l)...)...)
		if got := seenBy(t, &l.Pod("n2-p1").Host, &fresh.Host, addr); got != l.Pod("n2-p1").Addrs()[0] {
			t.Errorf("the new pod is not the one that is reached: got %s", got)
		}
	})
}

// Removed pods keep their namespaces until there are many; then all of these are released.
func TestRemovedPodsGoTogether(t *testing.T) {
	t.Parallel()
	l := build(t, grid(1, 0))
	const few = 8
	l.Node("n1").retired = slices.Repeat([]*Pod{{}}, manyRetired-few) // all of them for real would take long
	var gone []*Pod
	for range few {
		if held := len(l.Node("n1").retired); held != manyRetired-few+len(gone) {
			t.Fatalf("%d removed pods are held, want %d", held, manyRetired-few+len(gone))
		}
		p := addPod(t, l, "n1", "short-lived")
		if err := l.RemovePod("short-lived"); err != nil {
			t.Fatal(err)
		}
		gone = append(gone, p)
	}
	for i, p := range gone {
		if p.Fd() >= 0 {
			t.Fatalf("the namespace of removed pod %d of %d is still held", i+1, len(gone))
		}
	}
	pingAll(t, &l.Node("n1").Host, &addPod(t, l, "n1", "later").Host)
}

// portIndex returns the index of the node's device that leads to a pod.
func portIndex(t *testing.T, p *Pod) int {
	t.Helper()
	l, err := p.Node().Netlink().LinkByName(p.Node().Ports()[p.Addrs()[0]])
	if err != nil {
		t.Fatal(err)
	}
	return l.Attrs().Index
}

func TestAddAndRemoveNodes(t *testing.T) {
	t.Parallel()
	everyLab(t, 2, 1, func(t *testing.T, l *Lab) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		n, err := l.AddNode(ctx, NodeSpec{Name: "extra", Pods: []PodSpec{{Name: "extra-1"}, {Name: "extra-2"}}})
		if err != nil {
			t.Fatal(err)
		}
		everybody := append(podHosts(l), nodeHosts(l)...)
		if len(everybody) != 7 {
			t.Fatalf("%d pods and nodes, want 7", len(everybody))
		}
		for _, from := range everybody {
			pingAll(t, from, everybody...)
		}
		pingAll(t, l.Client(), &n.Host)
		p := l.Pod("n1-p1")
		if got := seenBy(t, &p.Host, &n.Host, n.Addrs()[0]); got != p.Addrs()[0] {
			t.Errorf("the new node sees pod %s as %s", p.Addrs()[0], got)
		}

		if err := l.RemoveNode("n1"); err != nil {
			t.Fatal(err)
		}
		if l.Node("n1") != nil || l.Pod("n1-p1") != nil || len(l.Nodes()) != 2 {
			t.Error("the lab still knows the node or its pods")
		}
		again, err := l.AddNode(ctx, NodeSpec{Name: "n1", Pods: []PodSpec{{Name: "n1-p1"}}})
		if err != nil {
			t.Fatal(err)
		}
		if want := lanAddr(FamilyOf(again.Addrs()[0]), 11); again.Addrs()[0] != want {
			t.Errorf("the node that took the free number has %s, want %s", again.Addrs()[0], want)
		}
		everybody = append(podHosts(l), nodeHosts(l)...)
		for _, from := range everybody {
			pingAll(t, from, everybody...)
		}
	})
}

func TestConcurrentChanges(t *testing.T) {
	t.Parallel()
	topology := grid(2, 1)
	topology.Stack = Dual
	l := build(t, topology)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			node, name := fmt.Sprintf("n%d", i%2+1), fmt.Sprintf("extra-%d", i)
			for range 3 {
				if _, err := l.AddPod(ctx, node, PodSpec{Name: name}); err != nil {
					t.Error(err)
				}
				if err := l.RemovePod(name); err != nil {
					t.Error(err)
				}
			}
			if _, err := l.AddPod(ctx, node, PodSpec{Name: name}); err != nil {
				t.Error(err)
			}
		})
	}
	for i := range 2 {
		wg.Go(func() {
			if _, err := l.AddNode(ctx, NodeSpec{Name: fmt.Sprintf("node-%d", i),
				Pods: []PodSpec{{Name: fmt.Sprintf("node-%d-pod", i)}}}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	everybody := append(podHosts(l), nodeHosts(l)...)
	if want := 2 + 8 + 2 + 4; len(everybody) != want {
		t.Errorf("%d pods and nodes, want %d", len(everybody), want)
	}
	seen := map[netip.Addr]string{}
	for _, h := range everybody {
		for _, a := range h.Addrs() {
			if seen[a] != "" {
				t.Errorf("%s has the address %s of %s", h.Name(), a, seen[a])
			}
			seen[a] = h.Name()
		}
	}
	for _, from := range everybody {
		pingAll(t, from, everybody...)
	}
}

func TestRefusedChanges(t *testing.T) {
	t.Parallel()
	l := build(t, grid(1, 1))
	ctx := t.Context()
	for _, row := range []struct {
		what   string
		change func() error
		want   string
	}{
		{"pod on no node", func() error { _, err := l.AddPod(ctx, "n9", PodSpec{Name: "x"}); return err },
			`add pod x: no node "n9"`},
		{"pod name taken", func() error { _, err := l.AddPod(ctx, "n1", PodSpec{Name: "n1-p1"}); return err },
			`add pod n1-p1: name is taken`},
		{"pod name bad", func() error { _, err := l.AddPod(ctx, "n1", PodSpec{Name: "X"}); return err },
			`add pod X: bad name: want lower case letters, digits and dashes`},
		{"node name taken", func() error { _, err := l.AddNode(ctx, NodeSpec{Name: "client"}); return err },
			`add node client: name is taken`},
		{"no such pod", func() error { return l.RemovePod("x") }, `remove pod x: no such pod`},
		{"no such node", func() error { return l.RemoveNode("x") }, `remove node x: no such node`},
	} {
		if err := row.change(); err == nil || err.Error() != row.want {
			t.Errorf("%s: got %v, want %s", row.what, err, row.want)
		}
	}
}

// A change that fails halfway leaves nothing that stands in the way of the next.
func TestCancelledChangeLeavesNothing(t *testing.T) {
	t.Parallel()
	l := build(t, grid(2, 1))
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.AddNode(cancelled, NodeSpec{Name: "n3", Pods: []PodSpec{{Name: "x"}}}); !errors.Is(err,
		context.Canceled) {
		t.Fatalf("got %v, want %v", err, context.Canceled)
	}
	if len(l.Nodes()) != 2 || l.Pod("x") != nil {
		t.Error("the node is there")
	}
	n, err := l.AddNode(t.Context(), NodeSpec{Name: "n3", Pods: []PodSpec{{Name: "x"}}})
	if err != nil {
		t.Fatal(err)
	}
	pingAll(t, &n.Host, podHosts(l)...)
}

func TestFullNode(t *testing.T) {
	t.Parallel()
	l := build(t, grid(1, 1))
	n := l.Node("n1")
	for host := firstPod; host <= lastPod; host++ { // as many pods for real would take long to take down
		n.taken[host] = true
	}
	_, err := l.AddPod(t.Context(), "n1", PodSpec{Name: "one-more"})
	if want := "n1: add pod one-more: all 252 addresses are taken"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	delete(n.taken, lastPod)
	pingAll(t, &n.Host, &addPod(t, l, "n1", "one-more").Host)
}

// The address of a pod that could not be made is free again.
func TestFailedPodsAddressIsFree(t *testing.T) {
	t.Parallel()
	l := build(t, grid(1, 1))
	n := l.Node("n1")
	inTheWay := (&Pod{node: n, serial: firstPod + n.podsMade}).port().Name
	if err := n.Netlink().LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: inTheWay}}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.AddPod(t.Context(), "n1", PodSpec{Name: "next"}); err == nil {
		t.Fatalf("a pod is made although the node has another device %s", inTheWay)
	}
	next := addPod(t, l, "n1", "next")
	if want := podAddr(V4, n.number, firstPod+1); next.Addrs()[0] != want {
		t.Errorf("the next pod has %s, want %s", next.Addrs()[0], want)
	}
	pingAll(t, &n.Host, &next.Host)
}

func TestClosedLab(t *testing.T) {
	t.Parallel()
	l, err := Build(t.Context(), grid(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := l.AddPod(t.Context(), "n1", PodSpec{Name: "x"}); !errors.Is(err, errClosed) {
		t.Errorf("AddPod: got %v, want %v", err, errClosed)
	}
	if _, err := l.AddNode(t.Context(), NodeSpec{Name: "x"}); !errors.Is(err, errClosed) {
		t.Errorf("AddNode: got %v, want %v", err, errClosed)
	}
}
