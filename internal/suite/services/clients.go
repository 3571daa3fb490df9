// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/viplab/viplab/internal/suite/services/oracle"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// remembered is a client of a Service with affinity, which must reach the same endpoint in the next state.
type remembered struct {
	question
	state  *oracle.State  // in which it reached the endpoint
	server netip.AddrPort // the endpoint
	name   string         // of the endpoint's pod
}

// manyClients is the number of clients that a case follows at once.
const manyClients = 6

// unstick asks no affinity of clients that ask a Service in two ways with different endpoints, as under a policy Local:
// each way may make the Service remember another endpoint.
func unstick(asked []question) {
	key := func(q question) string { return fmt.Sprint(q.from.name, q.from.source, q.to.service, q.family) }
	ways := map[string]string{}
	split := map[string]bool{}
	for _, q := range asked {
		if len(q.servers) == 0 {
			continue
		}
		k, servers := key(q), fmt.Sprint(q.servers)
		split[k] = split[k] || ways[k] != "" && ways[k] != servers
		ways[k] = servers
	}
	for i := range asked {
		if split[key(asked[i])] {
			asked[i].answer.Sticky = false
		}
	}
}

// introduce makes the clients of Services with affinity connect one after another. All rows are asked at once, and of
// two first connections of a client, each may reach an endpoint before the other one is remembered.
func introduce(ctx context.Context, w spec.World, asked []question) error {
	for _, q := range asked {
		if !q.answer.Sticky || len(q.answer.Endpoints) < 2 {
			continue
		}
		r := q.bare()
		r.Want, r.Servers = spec.Reply|spec.NotServed, q.servers
		if _, err := w.Observe(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// meet finds out which endpoint some of the clients reach whose questions have been asked.
func (p *player) meet(ctx context.Context, w spec.World, now *oracle.State, asked []question) error {
	for _, q := range asked {
		if len(p.clients) >= manyClients {
			return nil
		}
		// The endpoint that answers says nothing if there is no other.
		if q.answer.Verdict != oracle.Served || !q.answer.Sticky || len(q.answer.Endpoints) < 2 {
			continue
		}
		r := q.bare()
		r.Want, r.Servers = spec.Reply, q.servers
		seen, err := w.Observe(ctx, r)
		if err != nil {
			return err
		}
		for _, o := range seen {
			if o.Outcome == traffic.Reply {
				p.clients = append(p.clients, remembered{question: q, state: now, server: o.Local, name: o.Server})
			}
		}
	}
	return nil
}

// recall returns a row for each client that must reach its endpoint again. It forgets the others.
func (p *player) recall(w spec.World, now *oracle.State) []spec.Row {
	var rows []spec.Row
	var kept []remembered
	for _, c := range p.clients {
		a := now.Recall(c.state, c.Question, c.server)
		p.playing.Coverage.addAnswer(a)
		names, known := p.servers(w, a.Endpoints, c.to.protocol)
		if a.Verdict == oracle.Open || !known || !slices.Equal(names, []string{c.name}) || !p.isSender(w, c.question) ||
			!p.policed.indifferent(c.question, a) {
			continue
		}
		r := c.bare()
		r.Rule, r.Times = c.label(a.Rule()), 3
		r.Want, r.Servers, r.Port = spec.Reply, names, c.server.Port()
		rows = append(rows, r)
		c.state = now
		kept = append(kept, c)
	}
	p.clients = kept
	return rows
}

// isSender reports whether the sender of an earlier question is still there, with the same address.
func (p *player) isSender(w spec.World, q question) bool {
	return slices.ContainsFunc(p.senders(w, q.family), func(s sender) bool {
		return s.name == q.from.name && s.Addr == q.from.Addr
	})
}
