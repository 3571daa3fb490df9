// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// balancer picks endpoints in rotation, or the client's last one under session affinity. The zero value has no
// endpoints.
type balancer struct {
	mu        sync.Mutex
	endpoints []netip.AddrPort
	// round holds the endpoints of this round that have not been used, in order.
	round []netip.AddrPort
	// affinity is the time for which a client keeps its endpoint after its last new connection; 0 means no affinity.
	affinity time.Duration
	leases   map[netip.Addr]lease
	// swept is the number of leases after the last removal of expired ones.
	swept int
}

// lease is a client's affinity to an endpoint.
type lease struct {
	endpoint netip.AddrPort
	last     time.Time // when the client connected last
}

// set replaces the endpoints. If they differ, a new round begins.
func (b *balancer) set(endpoints []netip.AddrPort, affinity time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.endpoints, endpoints) {
		b.endpoints, b.round = endpoints, nil
	}
	if b.affinity = affinity; affinity == 0 {
		b.leases, b.swept = nil, 0
	}
}

// list returns the endpoints. The caller must not change it.
func (b *balancer) list() []netip.AddrPort {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.endpoints
}

func (b *balancer) size() int { return len(b.list()) }

// next returns the endpoint for a new connection of a client: its last one, or the next in rotation. It returns an
// endpoint that was already tried for this connection only if all were. The result is invalid if there is no endpoint.
func (b *balancer) next(client netip.Addr, tried []netip.AddrPort, now time.Time) netip.AddrPort {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.endpoints) == 0 {
		return netip.AddrPort{}
	}
	if b.affinity == 0 {
		return b.turn(tried)
	}
	chosen := b.leases[client].endpoint
	if b.over(b.leases[client], now) || slices.Contains(tried, chosen) || !slices.Contains(b.endpoints, chosen) {
		chosen = b.turn(tried)
	}
	b.renew(client, lease{chosen, now}, now)
	return chosen
}

// over reports whether a lease has ended. Its length is the present one: the Service's timeout may have changed.
func (b *balancer) over(l lease, now time.Time) bool { return l.last.Add(b.affinity).Before(now) }

// turn takes the next endpoint out of the round.
func (b *balancer) turn(tried []netip.AddrPort) netip.AddrPort {
	fresh := func(e netip.AddrPort) bool { return !slices.Contains(tried, e) }
	if !slices.ContainsFunc(b.endpoints, fresh) {
		fresh = func(netip.AddrPort) bool { return true }
	}
	i := slices.IndexFunc(b.round, fresh)
	if i < 0 {
		b.round = slices.Clone(b.endpoints)
		rand.Shuffle(len(b.round), func(i, j int) { b.round[i], b.round[j] = b.round[j], b.round[i] })
		i = slices.IndexFunc(b.round, fresh)
	}
	chosen := b.round[i]
	b.round = slices.Delete(b.round, i, i+1)
	return chosen
}

// renew stores a lease. Whenever the number of leases has doubled, it removes the expired ones.
func (b *balancer) renew(client netip.Addr, l lease, now time.Time) {
	if b.leases == nil {
		b.leases = map[netip.Addr]lease{}
	}
	b.leases[client] = l
	if len(b.leases) >= 2*max(b.swept, 512) {
		maps.DeleteFunc(b.leases, func(_ netip.Addr, l lease) bool { return b.over(l, now) })
		b.swept = len(b.leases)
	}
}

// dropLease removes a client's lease of an endpoint that has refused the client.
func (b *balancer) dropLease(client netip.Addr, from netip.AddrPort) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.leases[client].endpoint == from {
		delete(b.leases, client)
	}
}
