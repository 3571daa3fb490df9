// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/suite/dice"
	"github.com/viplab/viplab/internal/suite/services/oracle"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// most is the number of questions that are asked of a state.
const most = 30

// evens is the number of questions of a state that are asked so often that an uneven spread shows, and stickies that of
// those that are asked so often that a moving client shows.
const evens, stickies = 2, 3

// player plays one case.
type player struct {
	place
	c       Case
	now     State   // that the cluster is in, or is brought to
	addrs   numbers // of ClusterIPs
	ports   numbers // of NodePorts
	playing Playing
	dice    dice.Dice
	gone    []door // all that were asked so far
	flows   []*flow
	clients []remembered
	policed *isolation // in the state that is judged
	opened  int
	struck  string // the node to whose proxier something has happened; empty if nothing has
	anew    bool   // the objects are made anew, with other ClusterIPs and NodePorts
}

func newPlayer(c Case, playing Playing, w spec.World) *player {
	p := &player{c: c, playing: playing, dice: dice.New(c.seed(), 1)}
	p.place = place{slot: playing.Slot, families: w.Lab().Stack().Families(), pod: p.podAddrs(w)}
	return p
}

// seed returns a number that the case's ID determines.
func (c Case) seed() uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(c.ID)) // never fails
	return h.Sum64()
}

// judge asks questions about the state that the cluster is in.
func (p *player) judge(ctx context.Context, w spec.World) error {
	if err := w.Settle(ctx); err != nil {
		return err
	}
	now := p.state(w)
	asked := p.sample(p.ask(w, now))
	unstick(asked)
	if err := introduce(ctx, w, asked); err != nil {
		return err
	}
	var rows []spec.Row
	counts := map[string]int{}
	for i := range asked {
		rows = append(rows, p.row(w, &asked[i], counts))
	}
	rows = append(rows, p.follow(w, now)...)
	rows = append(rows, p.recall(w, now)...)
	fresh := p.open(asked)
	for _, f := range fresh {
		rows = append(rows, f.row)
	}
	if len(rows) == 0 {
		return nil
	}
	sent := time.Now()
	if err := w.Expect(ctx, rows...); err != nil {
		return err
	}
	p.flows = append(p.flows, fresh...)
	for _, f := range p.flows {
		f.used = sent
	}
	if err := p.locate(ctx, w); err != nil {
		return err
	}
	return p.meet(ctx, w, now, asked)
}

// state returns the cluster's state for the oracle, and notes what policies say.
func (p *player) state(w spec.World) *oracle.State {
	s := &oracle.State{Offers: oracle.Offers{
		Topology: w.Features()[spec.Topology], NodeHints: w.Features()[spec.NodeHints],
		SourceRanges: w.Features()[spec.SourceRanges], ServiceProxyName: w.Features()[spec.ServiceProxyName],
	}}
	s.Services, s.EndpointSlices, s.Nodes = objects(w)
	if p.policed = nil; w.Features()[spec.NetworkPolicy] {
		p.policed = newIsolation(w.Store().Snapshot(), !w.Features()[spec.SourceAddress])
	}
	return s
}

// sample returns one question of each class, and no more than most in all. Once something has happened to the proxier
// of a node, it prefers questions that this node routes.
func (p *player) sample(all []question) []question {
	p.dice.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if p.struck != "" {
		here := func(q question) bool { return q.router() == p.struck }
		there := slices.DeleteFunc(slices.Clone(all), here)
		all = append(slices.DeleteFunc(all, func(q question) bool { return !here(q) }), there...)
	}
	each, limit := 1, most
	if p.playing.Everything {
		each, limit = 3, len(all)
	}
	seen := map[string]int{}
	var out []question
	for _, q := range all {
		if c := q.class(); seen[c] < each && len(out) < limit {
			seen[c]++
			out = append(out, q)
		}
	}
	return out
}

// wants are the outcomes of verdicts.
var wants = map[oracle.Verdict]spec.Want{
	oracle.Served: spec.Reply, oracle.MayBeServed: spec.Reply | spec.NotServed, oracle.Refused: spec.Refused,
	oracle.Dropped: spec.Silence, oracle.DroppedOrRefused: spec.Silence | spec.Refused, oracle.NotServed: spec.NotServed,
}

// row returns the row of a question. counts limits the rows with many connections.
func (p *player) row(w spec.World, q *question, counts map[string]int) spec.Row {
	r := q.bare()
	r.Rule = q.label(q.answer.Rule())
	p.expect(w, q, &r)
	several := len(r.Servers) > 1
	few := func(kind string, most int) bool {
		counts[kind]++
		return counts[kind] <= most || p.playing.Everything
	}
	distinct := len(r.Servers) == len(q.answer.Endpoints)
	switch {
	case several && q.answer.Sticky && few("sticky", stickies):
		r.Sticky = true
	case several && q.answer.Evenly && distinct && len(r.Servers) < 5 && w.Features()[spec.RandomSpread] &&
		few("even", evens):
		r.Even = true
	case several || q.answer.Verdict == oracle.MayBeServed:
		r.Times = 4
	}
	return r
}

// bare returns a row that asks a question and expects nothing.
func (q *question) bare() spec.Row {
	return spec.Row{From: q.from.name, Source: q.from.source, To: q.to.to, Family: q.family,
		Proto: strings.ToLower(string(q.to.protocol))}
}

// expect makes a row want what an answer says.
func (p *player) expect(w spec.World, q *question, r *spec.Row) {
	r.Want = wants[q.answer.Verdict]
	if r.Want&spec.Reply == 0 {
		return
	}
	r.Servers = slices.Compact(slices.Sorted(slices.Values(q.servers)))
	r.Port = onePort(q.answer.Endpoints)
	itself := slices.Contains(q.servers, q.from.name)
	switch {
	case !w.Features()[spec.SourceAddress] || q.answer.Verdict != oracle.Served:
	case q.answer.Source == oracle.Client:
		r.SeenAs = spec.ClientAddrUnlessHairpin()
	case q.answer.Source == oracle.ClientOrNode && !itself:
		r.SeenAs = spec.ClientAddrOrNode()
	}
}

// onePort returns the port that all endpoints have, 0 if they have several.
func onePort(endpoints []netip.AddrPort) uint16 {
	var port uint16
	for _, e := range endpoints {
		if port != 0 && e.Port() != port {
			return 0
		}
		port = e.Port()
	}
	return port
}

// flow is a TCP connection or a UDP flow that stays open between states.
type flow struct {
	question
	row    spec.Row
	server netip.AddrPort // the endpoint that answered last; not valid if nobody did
	used   time.Time      // when it was used last, or before
}

// longestPause is half the time after which the kernel forgets a UDP flow without packets: 30 seconds by
// nf_conntrack_udp_timeout (Documentation/networking/nf_conntrack-sysctl.rst). The other half is for the proxier to
// converge, until the next datagram is sent.
const longestPause = 15 * time.Second

// mayBeForgotten reports whether the next datagram of the flow may begin a new one.
func (f *flow) mayBeForgotten() bool {
	return f.to.protocol == corev1.ProtocolUDP && time.Since(f.used) > longestPause
}

// manyFlows is the number of flows that a case keeps open at once, and allFlows that of one that is asked everything.
const manyFlows, allFlows = 8, 40

// open returns flows for some of the questions.
func (p *player) open(asked []question) []*flow {
	if p.c.ID == "" || len(p.c.States) < 2 {
		return nil
	}
	var out []*flow
	limit := manyFlows
	if p.playing.Everything {
		limit = allFlows
	}
	for _, q := range asked {
		served := q.answer.Verdict == oracle.Served
		if len(p.flows)+len(out) >= limit {
			break
		}
		refused := q.answer.Verdict == oracle.Refused && q.to.protocol == corev1.ProtocolUDP
		if !served && !refused || q.to.protocol == corev1.ProtocolSCTP {
			continue
		}
		p.opened++
		q.to.to = literal(q.to.addr) // which stays what it is when the Service is gone
		f := &flow{question: q, row: q.bare()}
		f.row.Conn = fmt.Sprintf("%s %d", f.row.Proto, p.opened)
		f.row.Rule = q.label(oracle.Rule{Name: "opened"})
		f.row.Want = wants[q.answer.Verdict]
		if served {
			f.row.Servers = slices.Compact(slices.Sorted(slices.Values(q.servers)))
			f.row.Port = onePort(q.answer.Endpoints)
		}
		out = append(out, f)
	}
	return out
}

// follow returns a row for each open flow whose fate the API decides. It gives up the others.
func (p *player) follow(w spec.World, now *oracle.State) []spec.Row {
	var rows []spec.Row
	p.flows = slices.DeleteFunc(p.flows, func(f *flow) bool {
		fate := now.Follow(f.Question, f.server)
		if f.to.protocol == corev1.ProtocolUDP && w.Features()[spec.Relays] {
			fate = now.FollowRelayed(f.Question, append([]netip.AddrPort{f.server}, f.answer.Endpoints...))
		}
		if f.mayBeForgotten() || !p.policed.indifferent(f.question, fate.Answer) {
			return true
		}
		servers, known := p.servers(w, fate.Endpoints, f.to.protocol)
		if fate.Verdict == oracle.Open || !known || fate.Verdict == oracle.MayBeServed && len(servers) == 0 {
			return true
		}
		f.answer, f.servers = fate.Answer, servers
		if i := slices.IndexFunc(now.Services, func(s *corev1.Service) bool { return s.Name == f.to.service }); i >= 0 {
			f.to.local = isLocal(now.Services[i]) && f.to.kind != "clusterip"
		}
		r := f.question.bare()
		r.Conn, r.Times, r.MayMove = f.row.Conn, 2, fate.MayMove
		r.Rule = f.label(fate.Rule())
		if r.Want = wants[fate.Verdict]; r.Want&spec.Reply == 0 {
			r.Want, r.MayMove = cmp.Or(r.Want, spec.NotServed)|spec.NotServed, false
		} else {
			r.Servers = slices.Compact(slices.Sorted(slices.Values(servers)))
			r.Port = onePort(fate.Endpoints)
		}
		f.row = r
		p.playing.Coverage.addAnswer(fate.Answer)
		rows = append(rows, r)
		return false
	})
	return rows
}

// locate finds out which endpoint each flow is with. It gives up flows that the kernel may have forgotten, and those
// that an endpoint may answer but does not: a slow endpoint looks the same.
func (p *player) locate(ctx context.Context, w spec.World) error {
	flows := p.flows
	p.flows = nil
	for _, f := range flows {
		if f.mayBeForgotten() {
			continue
		}
		f.server, f.used = netip.AddrPort{}, time.Now()
		if r := f.row; r.Want.Allows(traffic.Reply) {
			r.Times = 1
			seen, err := w.Observe(ctx, r)
			if err != nil {
				return err
			}
			for _, o := range seen {
				if o.Outcome == traffic.Reply {
					f.server = o.Local
				}
			}
			if !f.server.IsValid() {
				continue
			}
		}
		p.flows = append(p.flows, f)
	}
	return nil
}
