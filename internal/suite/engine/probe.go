// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// probeLimit bounds one probe with its fences. It is for hangs; answers and proved silence take far less.
const probeLimit = time.Minute

// patience is how long a probe whose answer is wanted goes on waiting after the fence has shown that none is on its
// way. It covers what the fence cannot see: a proxier that relays through a process of its own, and the first
// retransmission of a SYN (1 s, RFC 6298).
const patience = 5 * time.Second

// hastyPatience is that of a hasty run. It still covers the retransmission.
const hastyPatience = 2 * time.Second

// unwantedLimit is how many probes of one row may come to an unwanted outcome before the rest is not sent: the row has
// failed, and each further one might cost its patience.
const unwantedLimit = 3

// unwantedLimit is that of the run.
func (c *Cell) unwantedLimit() int {
	if c.hasty {
		return 1
	}
	return unwantedLimit
}

// probeOf is what a row sends in one family, as often as it says.
func (w *world) probeOf(row spec.Row, family lab.Family) (p traffic.Probe, err error) {
	to, err := w.Resolve(row.To, family, row.Protocol())
	if err != nil {
		return p, err
	}
	from, err := w.Host(row.From)
	if err != nil {
		return p, err
	}
	if err := w.mayAsk(row, from); err != nil {
		return p, err
	}
	source, err := w.source(row, family)
	if err != nil {
		return p, err
	}
	p = traffic.Probe{
		From: from.NS, Source: source, To: to, Proto: row.Protocol(), Payload: row.Payload,
		Patience: w.cell.patience(), IfAccepted: row.Want.Allows(traffic.Silence),
		Keep: row.Conn != "" && row.Protocol() == "udp",
		// What is masqueraded on a node has that node's address, too.
		Low: w.Lab().Node(row.From) != nil && row.SeenAs == spec.Itself(),
	}
	w.fence(&p, from, family, row.By)
	return p, nil
}

// mayAsk refuses a row that would judge a node on which no proxier was placed.
func (w *world) mayAsk(row spec.Row, from *lab.Host) error {
	at := ""
	switch row.To.Kind {
	case spec.NodePortOf:
		at = row.To.Host
	case spec.VIP, spec.Ingress:
		at = w.nodeOf(from)
	}
	if at == "" || w.env.hasProxier(at) {
		return nil
	}
	return spec.HarnessErrorf("%s has no proxier: the scenario has asked for a cluster with proxiers on %s alone", at,
		strings.Join(w.env.own.Nodes, ", "))
}

// nodeOf is the name of the node that a host is, or whose pod it is; empty if it is outside of the cluster.
func (w *world) nodeOf(h *lab.Host) string {
	if p := w.Lab().Pod(h.Name()); p != nil {
		return p.Node().Name()
	}
	if n := w.Lab().Node(h.Name()); n != nil {
		return n.Name()
	}
	return ""
}

// once makes a fresh connection.
func (w *world) once(ctx context.Context, row spec.Row, p traffic.Probe, o *spec.Observation) error {
	conn, err := w.open(ctx, row, p, o)
	if conn == nil {
		return err
	}
	return errors.Join(err, conn.Close())
}

// onKept sends on the kept connection of the row, or opens it.
func (w *world) onKept(ctx context.Context, row spec.Row, p traffic.Probe, o *spec.Observation) error {
	key := fmt.Sprintf("%s/%s", row.Conn, o.Family)
	w.mu.Lock()
	k := w.kept[key]
	w.mu.Unlock()
	if k == nil {
		conn, err := w.open(ctx, row, p, o)
		if conn != nil {
			w.mu.Lock()
			w.kept[key] = &keptConn{conn, o.Server}
			w.mu.Unlock()
		}
		return err
	}
	ctx, cancel := limited(ctx)
	defer cancel()
	k.conn.SetPatience(p.Patience, p.IfAccepted)
	o.Answer = k.conn.Exchange(ctx)
	o.First = k.first
	if err := w.finish(row, o); err != nil {
		return err
	}
	if o.Outcome == traffic.Reply && (row.Moves || k.first == "") {
		k.first = o.Server
	}
	return nil
}

// open probes once and leaves the connection open if there was an answer, and a UDP socket that is to be kept in any
// case.
func (w *world) open(ctx context.Context, row spec.Row, p traffic.Probe, o *spec.Observation) (*traffic.Conn, error) {
	ctx, cancel := limited(ctx)
	defer cancel()
	conn, answer := p.Open(ctx)
	o.Answer = answer
	return conn, w.finish(row, o)
}

// limited is the context of one probe.
func limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, probeLimit, fmt.Errorf("the probe's limit of %s is over", probeLimit))
}

// patience is how long a probe of the run waits for an answer beyond the fence.
func (c *Cell) patience() time.Duration {
	if c.hasty {
		return hastyPatience
	}
	return patience
}

// source is the address and port that a row sends from; the zero values leave them to the probe.
func (w *world) source(row spec.Row, family lab.Family) (netip.AddrPort, error) {
	if row.As == (spec.Target{}) {
		return netip.AddrPortFrom(netip.Addr{}, row.SourcePort), nil
	}
	addr, err := w.address(row.As, family)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("send as %s: %w", row.As, err)
	}
	return netip.AddrPortFrom(addr, row.SourcePort), nil
}

// finish adds to an observation what the client cannot see, and speaks of pods as the scenario does.
func (w *world) finish(row spec.Row, o *spec.Observation) error {
	if o.Fault != nil {
		return o.Fault
	}
	o.Server = shortName(w.namespace, o.Server)
	if o.Outcome != traffic.Reply {
		o.Strays = w.strays(o.Nonce)
		return nil
	}
	if row.Flow.Node == "" {
		return nil
	}
	flow, ok, err := w.Flow(row.Flow.Node, row.Protocol(), observe.Tuple{Src: o.Source, Dst: o.To})
	if ok {
		o.Flow = &flow
	}
	return err
}

// strays are the servers that received a request although its client got no answer.
func (w *world) strays(nonce string) []string {
	var out []string
	for _, s := range w.allServers() {
		if slices.ContainsFunc(s.Seen(), func(x traffic.Seen) bool { return x.Nonce == nonce }) {
			out = append(out, shortName(w.namespace, s.Name()))
		}
	}
	return out
}

// allServers are the servers of all pods, and those on other hosts.
func (w *world) allServers() []*traffic.Server {
	var out []*traffic.Server
	for _, ns := range w.namespaces() {
		out = append(out, w.env.Servers(ns)...)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return append(out, w.servers...)
}

// fence gives a probe its fences. Network policies may keep a pod from sending echoes, but not its node, which sends
// them from the same CPU.
func (w *world) fence(p *traffic.Probe, from *lab.Host, family lab.Family, by []string) {
	p.Fences = w.fences(from, family, by)
	if pod := w.Lab().Pod(from.Name()); pod != nil && w.Features()[spec.NetworkPolicy] {
		p.FencesFrom = pod.Node().NS
	}
}

// fences are addresses that answer ICMP echo, beyond which nothing that the probe set in motion can still be on its
// way: every node, and from inside the cluster, unless policies may isolate them, the pods that may answer too, or, if
// none may, every pod of the scenario. A pod that has nothing to do with the probe may be taken down at any time.
func (w *world) fences(from *lab.Host, family lab.Family, by []string) []netip.Addr {
	l := w.Lab()
	var out []netip.Addr
	for _, n := range l.Nodes() {
		out = append(out, n.Addr(family))
	}
	if from == l.Client() || from == l.Router() || w.Features()[spec.NetworkPolicy] {
		return out
	}
	for _, p := range l.Pods() {
		name := shortName(w.namespace, p.Name())
		if p.Name() != from.Name() && name != p.Name() && (len(by) == 0 || slices.Contains(by, name)) {
			out = append(out, p.Addr(family))
		}
	}
	return out
}
