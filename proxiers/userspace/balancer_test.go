// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"
)

var (
	alice = netip.MustParseAddr("192.0.2.1")
	bob   = netip.MustParseAddr("192.0.2.2")
	noon  = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
)

func someEndpoints(n int) []netip.AddrPort {
	var out []netip.AddrPort
	for i := range n {
		out = append(out, netip.MustParseAddrPort(fmt.Sprintf("10.244.0.%d:80", i+1)))
	}
	return out
}

// TestRounds: n connections in a row reach each of n endpoints once.
func TestRounds(t *testing.T) {
	var b balancer
	if got := b.next(alice, nil, noon); got.IsValid() {
		t.Errorf("without endpoints: got %s", got)
	}
	for _, n := range []int{1, 2, 7} {
		b.set(someEndpoints(n), 0)
		for range 5 {
			var round []netip.AddrPort
			for range n {
				round = append(round, b.next(alice, nil, noon))
			}
			slices.SortFunc(round, netip.AddrPort.Compare)
			if !slices.Equal(round, someEndpoints(n)) {
				t.Errorf("a round among %d: %v", n, round)
			}
		}
	}
}

// TestTurnsAreShared: two clients that connect in turns each get all endpoints.
func TestTurnsAreShared(t *testing.T) {
	var b balancer
	b.set(someEndpoints(2), 0)
	for _, client := range []netip.Addr{alice, bob} {
		seen := map[netip.AddrPort]bool{}
		for range 100 { // one endpoint only, by chance: 2^-100
			seen[b.next(client, nil, noon)] = true
			b.next(client, nil, noon)
		}
		if len(seen) != 2 {
			t.Errorf("every second connection goes to %v", seen)
		}
	}
}

// TestNextOnFailure: for one connection, each endpoint is tried before one is tried again.
func TestNextOnFailure(t *testing.T) {
	for _, affinity := range []time.Duration{0, time.Hour} {
		var b balancer
		b.set(someEndpoints(4), affinity)
		for range 10 {
			var tried []netip.AddrPort
			for range 4 {
				tried = append(tried, b.next(alice, tried, noon))
			}
			last := tried[3]
			slices.SortFunc(tried, netip.AddrPort.Compare)
			if !slices.Equal(tried, someEndpoints(4)) {
				t.Errorf("affinity %s: tried %v", affinity, tried)
			}
			if !b.next(alice, tried, noon).IsValid() {
				t.Error("after all have failed, none is left")
			}
			if affinity > 0 {
				b.leases[alice] = lease{last, noon.Add(affinity)}
				if got := b.next(alice, nil, noon); got != last {
					t.Errorf("the next connection goes to %s, not to %s, which took the last one", got, last)
				}
			}
		}
	}
}

func TestAffinity(t *testing.T) {
	var b balancer
	b.set(someEndpoints(3), time.Minute)
	first := b.next(alice, nil, noon)
	at := noon
	for range 20 {
		b.next(bob, nil, at)
		at = at.Add(59 * time.Second)
		if got := b.next(alice, nil, at); got != first {
			t.Fatalf("%s after its last connection, the client goes from %s to %s", 59*time.Second, first, got)
		}
	}
	moved := false
	for range 100 { // by chance, not one of them: 3^-100
		at = at.Add(61 * time.Second)
		moved = moved || b.next(alice, nil, at) != first
	}
	if !moved {
		t.Error("a client keeps its endpoint for ever")
	}

	kept := b.next(alice, nil, at)
	others := slices.DeleteFunc(someEndpoints(3), func(e netip.AddrPort) bool { return e == kept })
	b.set(others, time.Minute)
	if got := b.next(alice, nil, at); got == kept {
		t.Error("a client goes to an endpoint that is gone")
	}
	kept = b.next(alice, nil, at)
	b.set(someEndpoints(3), time.Minute)
	if got := b.next(alice, nil, at); got != kept {
		t.Error("a client loses its endpoint when others come")
	}
	b.dropLease(alice, kept)
	if _, ok := b.leases[alice]; ok {
		t.Error("a client that was refused sticks to the endpoint")
	}
	b.set(someEndpoints(3), 0)
	if len(b.leases) > 0 {
		t.Error("affinity is off, and leases remain")
	}
}

// TestLeasesExpire: the number of leases does not grow with the total number of clients.
func TestLeasesExpire(t *testing.T) {
	var b balancer
	b.set(someEndpoints(3), time.Minute)
	client, at := alice, noon
	for range 100_000 {
		client, at = client.Next(), at.Add(time.Second)
		b.next(client, nil, at)
	}
	if n := len(b.leases); n > 2000 {
		t.Errorf("%d leases are kept, of which 60 are not expired", n)
	}
}
