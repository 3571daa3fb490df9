// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// balancer lets endpoints take turns, and clients with session affinity keep theirs. The zero value has no endpoints.
type balancer struct {
	mu        sync.Mutex
	endpoints []netip.AddrPort
	// round are the endpoints whose turn is still to come in this round, in their order.
	round []netip.AddrPort
	// affinity is how long a client keeps its endpoint after its last new connection; 0 means not at all.
	affinity time.Duration
	leases   map[netip.Addr]lease
	// swept is how many leases were left when expired ones were last thrown away.
	swept int
}

// lease is a client's right to an endpoint.
type lease struct {
	endpoint netip.AddrPort
	until    time.Time
}

// set says who the endpoints are from now on. If they are others than before, a new round begins.
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

// list is who the endpoints are. It must not be changed.
func (b *balancer) list() []netip.AddrPort {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.endpoints
}

// size is their number.
func (b *balancer) size() int { return len(b.list()) }

// next is the endpoint for a new connection of a client: the one it had, or the next one whose turn it is. Those that
// were tried for this connection come again only when all have been. It is not valid if there is no endpoint.
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
	if b.leases[client].until.Before(now) || slices.Contains(tried, chosen) || !slices.Contains(b.endpoints, chosen) {
		chosen = b.turn(tried)
	}
	b.renew(client, lease{chosen, now.Add(b.affinity)}, now)
	return chosen
}

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

// renew writes a lease down. Whenever their number has doubled, the expired ones are thrown away.
func (b *balancer) renew(client netip.Addr, l lease, now time.Time) {
	if b.leases == nil {
		b.leases = map[netip.Addr]lease{}
	}
	b.leases[client] = l
	if len(b.leases) < 2*max(b.swept, 512) {
		return
	}
	for c, l := range b.leases {
		if l.until.Before(now) {
			delete(b.leases, c)
		}
	}
	b.swept = len(b.leases)
}

// unstick takes a client's right to an endpoint away, because the endpoint has refused it.
func (b *balancer) unstick(client netip.Addr, from netip.AddrPort) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.leases[client].endpoint == from {
		delete(b.leases, client)
	}
}
