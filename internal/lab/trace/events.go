// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/lab/ruleset"
	"github.com/viplab/viplab/lab/observe"
)

// event is a point of a packet's way through a node's rules.
type event struct {
	hook     string
	priority int
	step     *Step // nil for a point that is only looked at, such as a probe
	// src and dst are the addresses before the step. They are not valid if the event does not tell.
	src, dst netip.AddrPort
	ttl      uint8
	mark     uint32
	after    bool     // the mark is that after the step, not before
	states   []string // of the connection; nil if the event does not tell
	quoted   *Quoted  // nil if the event does not tell
}

// pass is a packet's way from the start of prerouting or output on.
type pass struct {
	hook   string
	ttl    uint8
	events []event
	bridge bool // it has only met the hook of bridges so far
}

// reader makes passes from the records of a node.
type reader struct {
	*spot
	key    key
	passes []pass
	// mine tells whose messages without headers are, by the kernel's number, and at where they are.
	mine map[uint32]bool
	at   map[uint32]ruleset.Chain
	open map[uint32]*event // probes whose messages have begun
	// quoted are the packets that ICMP errors quote at the probes.
	quoted map[string]*Quoted
	seen   map[start]bool
	skip   bool // the pass is of a retransmission
}

// start is what distinguishes the passes of a packet. A retransmission has the same.
type start struct {
	hook     string
	ttl      uint8
	src, dst netip.AddrPort
}

// read returns the passes of a packet through a node's rules.
func (p *spot) read(k key) []pass {
	r := reader{
		spot: p, key: k, mine: map[uint32]bool{}, at: map[uint32]ruleset.Chain{}, open: map[uint32]*event{},
		quoted: map[string]*Quoted{}, seen: map[start]bool{},
	}
	for _, x := range p.records {
		switch {
		case x.message != nil:
			r.message(x.message)
		case x.logged.group == ownGroup:
			if packet, err := observe.DecodeIP(x.logged.packet); err == nil && k.is(packet) {
				r.quoted[x.logged.prefix] = quotedIn(packet)
			}
		default:
			r.legacy(x.logged)
		}
	}
	return r.passes
}

func quotedIn(p *observe.Packet) *Quoted {
	if p.Quoted == nil {
		return nil
	}
	return &Quoted{p.Quoted.Src, p.Quoted.Dst}
}

// begin begins a pass.
func (r *reader) begin(e *event, bridge bool) {
	if n := len(r.passes); n > 0 && r.passes[n-1].bridge && !bridge && r.passes[n-1].ttl == e.ttl && !r.skip {
		r.passes[n-1].bridge = false
		return
	}
	s := start{e.hook, e.ttl, e.src, e.dst}
	r.skip = r.seen[s]
	r.seen[s] = true
	if !r.skip {
		r.passes = append(r.passes, pass{hook: e.hook, ttl: e.ttl, bridge: bridge})
	}
}

func (r *reader) add(e event) {
	if r.skip || len(r.passes) == 0 {
		return
	}
	p := &r.passes[len(r.passes)-1]
	p.events = append(p.events, e)
}

// message reads what the kernel says of a rule or of the end of a chain.
func (r *reader) message(m *message) {
	own := m.table == tableName
	var e event
	if m.network != nil {
		r.mine[m.id] = r.key.header(m.network, m.transport)
		if !r.mine[m.id] {
			return
		}
		delete(r.open, m.id)
		if packet, err := observe.DecodeIP(slices.Concat(m.network, m.transport)); err == nil {
			e.src, e.dst, e.ttl = packet.Src, packet.Dst, packet.TTL
		}
		r.at[m.id] = r.place(m)
		if own {
			r.enter(m, e)
		}
	}
	switch {
	case !r.mine[m.id]:
	case own:
		r.look(m)
	default:
		at := r.at[m.id]
		e.hook, e.priority, e.mark, e.after, e.step = at.Hook, at.Priority, m.mark, true, r.step(m, at)
		r.add(e)
	}
}

// place returns the base chain that a message with headers is about, with its hook.
func (p *spot) place(m *message) (c ruleset.Chain) {
	if t := p.table(families[m.family], m.table); t != nil {
		if c := t.Chain(m.chain); c != nil {
			return ruleset.Chain{Hook: c.Hook, Priority: c.Priority}
		}
	}
	return c
}

// enter notes that a packet has come to a probe.
func (r *reader) enter(m *message, e event) {
	i := slices.IndexFunc(r.probes, func(p probe) bool { return p.chain() == m.chain })
	if i < 0 {
		return
	}
	p := r.probes[i]
	e.hook, e.priority = p.hook, p.priority
	if p.isStart() {
		r.begin(&e, m.family == unix.NFPROTO_BRIDGE)
	}
	if m.family != unix.NFPROTO_BRIDGE {
		r.open[m.id] = &e
	}
}

// look reads a message of a probe. The names of chains that it leads to are the state of the connection, and the last
// message is that of the policy.
func (r *reader) look(m *message) {
	e := r.open[m.id]
	switch {
	case e == nil:
	case m.jump != "":
		e.states = append(e.states, m.jump)
	case m.kind == kindPolicy:
		e.mark, e.quoted = m.mark, r.quoted[m.chain]
		delete(r.quoted, m.chain)
		delete(r.open, m.id)
		slices.SortFunc(e.states, func(a, b string) int { return order(a) - order(b) })
		if e.states == nil {
			e.states = []string{} // none
		}
		r.add(*e)
	}
}

// order sorts names of states before those of statuses.
func order(name string) int {
	return slices.IndexFunc(slices.Concat(states, statuses), func(b bit) bool { return b.name == name })
}

// legacy reads what a rule of a legacy table has logged.
func (r *reader) legacy(l *logged) {
	packet, err := observe.DecodeIP(l.packet)
	prefix, ok := strings.CutPrefix(strings.TrimSpace(l.prefix), "TRACE: ")
	words := strings.Split(prefix, ":") // table, chain, kind, number
	if err != nil || !ok || !r.key.is(packet) || len(words) != 4 || int(l.hook) >= len(hookNames) {
		return
	}
	e := event{
		hook: hookNames[l.hook], src: packet.Src, dst: packet.Dst, ttl: packet.TTL, mark: l.mark, quoted: quotedIn(packet),
	}
	e.step = r.legacyStep(&e, packet, words)
	r.add(e)
}
