// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Fate is what may become of an open TCP connection or UDP flow after a change.
type Fate struct {
	// Answer is what may become of the next request. Endpoints are those that may answer it; Sure is empty.
	Answer
	// MayMove reports whether another endpoint than before may answer. A TCP connection cannot move.
	MayMove bool
}

// Follow says what must become of an open TCP connection, or of a UDP flow from one socket, after the cluster has
// changed to this state. q is the question that opened it, and server the endpoint that it reached. server is not valid
// for a flow that nobody has answered.
func (s *State) Follow(q Question, server netip.AddrPort) Fate {
	now := s.Ask(q)
	stays := slices.Contains(now.Sure, server)
	if q.Protocol == corev1.ProtocolTCP {
		if now.Verdict != Served || !stays {
			return Fate{Answer: answer(Open, tcpUndecided)}
		}
		return Fate{Answer: fated(Served, flowStays, now, server)}
	}
	claims, _ := s.claims(q)
	switch {
	case now.Verdict == Open || len(claims) > 1:
		return Fate{Answer: answer(Open, now.Rules...)}
	case len(claims) == 0:
		return Fate{Answer: fated(NotServed, flowEnds, now)}
	case stays && now.Verdict == Served:
		return Fate{Answer: fated(Served, flowStays, now, server)}
	case now.Rule() == outOfRange, now.Rule() == rangesElsewhere, now.Rule() == rangesIgnored:
		return Fate{Answer: answer(Open, now.Rules...)}
	case s.serves(claims[0], q, server):
		v := MayBeServed
		if now.Verdict == Served {
			v = Served
		}
		return Fate{Answer: fated(v, flowDrains, now, append(now.Endpoints, server)...), MayMove: true}
	}
	return Fate{Answer: fated(now.Verdict, flowMoves, now, now.Endpoints...), MayMove: true}
}

// FollowRelayed is Follow for a UDP flow through a relay, which was with one of the servers before the change. Nothing
// says how long a relay remembers a client that sends nothing, so it may have moved the flow. If the fates of the
// servers differ, the fate is Open.
func (s *State) FollowRelayed(q Question, servers []netip.AddrPort) Fate {
	fate := s.Follow(q, servers[0])
	for _, server := range servers[1:] {
		other := s.Follow(q, server)
		if other.Verdict != fate.Verdict {
			return Fate{Answer: answer(Open, fate.Rules...)}
		}
		fate.Endpoints = append(fate.Endpoints, other.Endpoints...)
	}
	if fate.Verdict == Served {
		fate.Endpoints, fate.MayMove = append(fate.Endpoints, s.Ask(q).Endpoints...), true
	}
	return fate
}

// fated returns an answer with the rule of a flow before those of the question.
func fated(v Verdict, rule Rule, now Answer, endpoints ...netip.AddrPort) Answer {
	return Answer{Verdict: v, Endpoints: endpoints, Rules: append([]Rule{rule}, now.Rules...)}
}

// serves reports whether slices list the endpoint as one that is able to receive traffic.
func (s *State) serves(c claim, q Question, server netip.AddrPort) bool {
	return slices.ContainsFunc(s.endpoints(c, familyOf(q.To.Addr())), func(e endpoint) bool {
		return e.addr == server && (e.mayBeReady() || e.ever(func(c condition) bool { return c.serving }))
	})
}
