// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	. "github.com/viplab/viplab/internal/lab/nstest"
	"github.com/viplab/viplab/lab/netns"
)

// TestFenceIsNotOvertaken sends probes over an allowed path while both the CPUs and the path are busy, with a fence
// that is much nearer than the target: no silence may be declared.
//
// Measured (probes by how many echoes were sent before the answer was seen), 2 CPUs, 4 probes at a time, this test and
// the next:
//
//	Linux 6.18       8,000 probes: no echo was ever needed
//	Linux 6.12 (VM)  8,000 probes: the same
//	Linux 6.1 (VM)  14,400 probes: none for 96 %, 1 to 16 late ones for the others. That kernel leaves packets to
//	                 ksoftirqd while that is running. About one in a thousand was lost on the ten-router path, each
//	                 time with the counter of full queues going up: those silences are what errDropped is for.
func TestFenceIsNotOvertaken(t *testing.T) {
	w := newWorld(t)
	for _, f := range families {
		serve(t, w.server, "web", []netip.Addr{f.server}, bothPorts...)
	}
	load(t, w.client, families[0].server)
	eachFamilyAndProto(t, func(t *testing.T, f family, proto string) {
		overtake(t, Probe{
			From: w.client, To: netip.AddrPortFrom(f.server, 80), Proto: proto, Fences: []netip.Addr{f.gateway},
		})
	})
}

// The same with a target that is ten routers away, while the fence is the first of them.
func TestFenceIsNotOvertakenFromAfar(t *testing.T) {
	const routers = 10
	client := NewNS(t, "client")
	last := client
	for i := range routers + 1 {
		next := NewNS(t, fmt.Sprintf("r%d", i))
		Must(t, next.SetSysctls(netns.Setting{Key: "net.ipv4.ip_forward", Value: "1"}))
		near, far := netip.AddrFrom4([4]byte{10, 1, byte(i), 1}), netip.AddrFrom4([4]byte{10, 1, byte(i), 2})
		Veth(t, last, "right", next, "left")
		Address(t, last, "right", near, 24)
		Address(t, next, "left", far, 24)
		Route(t, last, netip.IPv4Unspecified(), 0, far)
		if i > 0 {
			Route(t, next, addr("10.1.0.0"), 24, near)
		}
		Link(t, last, "right")
		Link(t, next, "left")
		last = next
	}
	target := netip.AddrFrom4([4]byte{10, 1, routers, 2})
	serve(t, last, "web", []netip.Addr{target}, bothPorts...)
	load(t, client, target)
	for _, proto := range []string{"tcp", "udp"} {
		t.Run(proto, func(t *testing.T) {
			p := Probe{From: client, To: netip.AddrPortFrom(target, 80), Proto: proto}
			if a := p.Do(Within(t)); a.Outcome != Reply { // lets all neighbours find each other
				t.Fatal(a)
			}
			p.Fences = []netip.Addr{addr("10.1.0.2")}
			overtake(t, p)
		})
	}
}

func TestCPUsOf(t *testing.T) {
	for tries := 1; ; tries++ { // others may have their turn on the CPU
		var ran int
		var failed error
		cpus, err := cpusOf(func() { ran, failed = presentCPU() })
		Must(t, errors.Join(err, failed))
		got := numbers(cpus)
		if !slices.Contains(got, ran) {
			t.Fatalf("ran on CPU %d, got %v", ran, got)
		}
		if len(got) == 1 {
			break
		}
		if tries == 1000 {
			t.Fatalf("got %v", got)
		}
	}
}

func TestCPUsOfAMovedThread(t *testing.T) {
	allowed, err := allowedCPUs()
	Must(t, err)
	all := numbers(allowed)
	if len(all) == 1 {
		t.Skip("a thread cannot move: there is one CPU")
	}
	cpus, err := cpusOf(func() {
		for _, cpu := range []int{all[0], all[1]} {
			Must(t, moveTo(cpu))
		}
		Must(t, unix.SchedSetaffinity(0, &allowed))
	})
	Must(t, err)
	if got := numbers(cpus); !slices.Equal(got, all) {
		t.Errorf("on the CPUs %d and %d: got %v, want all of %v", all[0], all[1], got, all)
	}
}

// The fences are sent from all CPUs that have sent the packet.
func TestFencesFromEveryCPU(t *testing.T) {
	w := newWorld(t)
	f := families[0]
	c, err := Probe{From: w.client, To: netip.AddrPortFrom(f.server, 80), Proto: "tcp",
		Fences: []netip.Addr{f.gateway}}.prepare()
	Must(t, err)
	defer c.Close()
	allowed, err := allowedCPUs()
	Must(t, err)
	Must(t, c.fenceFrom(Within(t), allowed, func() bool { return false }))
	if want := len(numbers(allowed)); c.echoes < want*promptEchoes {
		t.Errorf("%d echoes, want %d from each of %d CPUs", c.echoes, promptEchoes, want)
	}
	asked := 0
	Must(t, c.fenceFrom(Within(t), allowed, func() bool { asked++; return true }))
	if asked != 1 {
		t.Errorf("the fences went on %d times after they were enough", asked-1)
	}
}

func overtake(t *testing.T, p Probe) {
	t.Helper()
	const workers, each, enough = 4, 100, 5 * time.Second // an emulated machine does not get as far as each
	start := time.Now()
	var mu sync.Mutex
	needed, dropped := map[int]int{}, 0
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				if time.Since(start) > enough {
					return
				}
				c, err := p.prepare()
				if err != nil {
					t.Error(err)
					return
				}
				a := c.Exchange(Within(t))
				if a.Outcome != Reply && !errors.Is(a.Fault, errDropped) {
					t.Error(a)
				}
				mu.Lock()
				if needed[c.echoes]++; a.Fault != nil {
					dropped++
				}
				mu.Unlock()
				c.Close()
			}
		})
	}
	wg.Wait()
	t.Logf("probes by the number of echoes before the answer: %v; lost to full queues: %d", needed, dropped)
}

// load keeps every CPU busy with computing, and with packets over the same path as the probes', until the test ends.
func load(t *testing.T, client *netns.NS, target netip.Addr) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range runtime.NumCPU() {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
			}
		})
		wg.Go(func() { flood(ctx, t, client, target) })
	}
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
}

func flood(ctx context.Context, t *testing.T, client *netns.NS, target netip.Addr) {
	fd, err := client.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Error(err)
		return
	}
	defer unix.Close(fd)
	to := netns.Sockaddr(netip.AddrPortFrom(target, 9)) // closed: an ICMP error comes back for some
	for ctx.Err() == nil {
		unix.Sendto(fd, make([]byte, 100), 0, to)
	}
}
