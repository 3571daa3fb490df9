// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/viplab/viplab/internal/lab/sctp"
	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// probeLimit bounds one probe with its fences, to detect hangs. Answers and proved silence take far less.
const probeLimit = time.Minute

// patience is how long a probe that requires an answer waits after its fences. It covers delays that fences cannot
// detect: those of a proxier that relays in user space, and the first retransmission of a SYN (1 s, RFC 6298). It is
// longer on busy machines.
const patience = 5 * time.Second

// failFastPatience is the patience of a failFast run. It still covers the retransmission.
const failFastPatience = 2 * time.Second

// unwantedLimit is the number of unwanted outcomes after which a row stops: it has failed, and each further probe might
// wait for its patience. A failFast run uses 1.
const unwantedLimit = 3

// prober sends the probes of a scenario.
type prober struct {
	*scope
	patience      time.Duration
	unwantedLimit int

	mu   sync.Mutex
	kept map[string]*keptConn // by Row.Conn and family
}

// keptConn is a connection that stays open between rows.
type keptConn struct {
	conn  *traffic.Conn
	first string // the server that answered first
}

func newProber(s *scope, failFast bool) *prober {
	p := &prober{scope: s, patience: patience, unwantedLimit: unwantedLimit, kept: map[string]*keptConn{}}
	if failFast {
		p.patience, p.unwantedLimit = failFastPatience, 1
	}
	return p
}

// close closes the connections that were kept.
func (p *prober) close() error {
	var errs []error
	for _, k := range p.kept {
		errs = append(errs, k.conn.Close())
	}
	return errors.Join(errs...)
}

// probeOf returns the probe of a row in one family.
func (p *prober) probeOf(row spec.Row, family lab.Family) (probe traffic.Probe, err error) {
	to, err := p.Resolve(row.To, family, row.Protocol())
	if err != nil {
		return probe, err
	}
	from, err := p.Host(row.From)
	if err != nil {
		return probe, err
	}
	if err := p.checkProxier(row); err != nil {
		return probe, err
	}
	source, err := p.source(row, family)
	if err != nil {
		return probe, err
	}
	probe = traffic.Probe{
		From: from.NS, Source: source, To: to, Proto: row.Protocol(), Payload: row.Payload,
		Patience: machine.Busy(p.patience), IfAccepted: row.Want.Allows(traffic.Silence),
		Single: row.Conn == "", Keep: row.Conn != "" && row.Protocol() == "udp", OwnServers: true,
		// Masqueraded packets have the node's address, too.
		PrivilegedPort: p.Lab().Node(row.From) != nil && row.SeenAs == spec.ClientAddr(),
		Fences:         p.fences(from, family, row.Servers),
	}
	// Network policies may drop a pod's echoes, but not those of its node, which sends them from the same CPU.
	if pod := p.Lab().Pod(from.Name()); pod != nil && p.Features()[spec.NetworkPolicy] {
		probe.FencesFrom = pod.Node().NS
	}
	return probe, nil
}

// checkProxier returns an error for a row that would judge a node without a proxier.
func (p *prober) checkProxier(row spec.Row) error {
	at := p.proxiedBy(row)
	if at == "" || p.env.hasProxier(at) {
		return nil
	}
	return spec.HarnessErrorf("%s has no proxier: the scenario has asked for a cluster with proxiers on %s alone", at,
		strings.Join(p.env.own.Nodes, ", "))
}

// proxiedBy returns the node whose proxier translates the probes of a row, or "" if none does or it is not known.
func (s *scope) proxiedBy(row spec.Row) string {
	switch row.To.Kind {
	case spec.NodePortOf:
		return row.To.Host
	case spec.VIP, spec.Ingress:
		if from, err := s.Host(row.From); err == nil {
			return s.nodeOf(from)
		}
	}
	return ""
}

// source returns the address and port that a row sends from. For zero values the probe chooses.
func (p *prober) source(row spec.Row, family lab.Family) (netip.AddrPort, error) {
	if row.Source == (spec.Target{}) {
		return netip.AddrPortFrom(netip.Addr{}, row.SourcePort), nil
	}
	addr, err := p.address(row.Source, family)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("send as %s: %w", row.Source, err)
	}
	return netip.AddrPortFrom(addr, row.SourcePort), nil
}

// fences returns addresses that answer ICMP echo. Once they have answered, no packet that the probe caused can still be
// on its way. They are all nodes and, if the sender is in the cluster and policies cannot isolate pods, the pods that
// may answer, or all pods of the scenario if none may. Pods of other scenarios may be removed at any time.
func (p *prober) fences(from *lab.Host, family lab.Family, by []string) []netip.Addr {
	l := p.Lab()
	var out []netip.Addr
	for _, n := range l.Nodes() {
		out = append(out, n.Addr(family))
	}
	if from == l.Client() || from == l.Router() || p.Features()[spec.NetworkPolicy] {
		return out
	}
	for _, pod := range l.Pods() {
		name := shortName(p.namespace, pod.Name())
		if pod.Name() != from.Name() && name != pod.Name() && (len(by) == 0 || slices.Contains(by, name)) {
			out = append(out, pod.Addr(family))
		}
	}
	return out
}

// send sends one probe of a row on the row's kept connection, or on a new one.
func (p *prober) send(ctx context.Context, row spec.Row, probe traffic.Probe, o *spec.Observation) error {
	if row.Conn != "" {
		return p.sendKept(ctx, row, probe, o)
	}
	conn, err := p.open(ctx, row, probe, o)
	if conn == nil {
		return err
	}
	return errors.Join(err, conn.Close())
}

// sendKept sends on the kept connection of the row, or opens it.
func (p *prober) sendKept(ctx context.Context, row spec.Row, probe traffic.Probe, o *spec.Observation) error {
	key := fmt.Sprintf("%s/%s", row.Conn, o.Family)
	p.mu.Lock()
	k := p.kept[key]
	p.mu.Unlock()
	if k == nil {
		conn, err := p.open(ctx, row, probe, o)
		if conn != nil {
			p.mu.Lock()
			p.kept[key] = &keptConn{conn, o.Server}
			p.mu.Unlock()
		}
		return err
	}
	ctx, cancel := limited(ctx)
	defer cancel()
	k.conn.SetPatience(probe.Patience, probe.IfAccepted)
	k.conn.SetFences(probe.Fences)
	o.Answer = k.conn.Exchange(ctx)
	o.First = k.first
	if err := p.complete(row, o); err != nil {
		return err
	}
	if o.Outcome == traffic.Reply && (row.MayMove || k.first == "") {
		k.first = o.Server
	}
	return nil
}

// open sends a first probe. It keeps the connection open if there was an answer, and a UDP socket for a kept connection
// in any case.
func (p *prober) open(ctx context.Context, row spec.Row, probe traffic.Probe, o *spec.Observation) (*traffic.Conn,
	error) {
	ctx, cancel := limited(ctx)
	defer cancel()
	if row.Protocol() == "sctp" {
		o.Answer = associate(ctx, row, probe)
		return nil, p.complete(row, o)
	}
	conn, answer := probe.Open(ctx)
	o.Answer = answer
	return conn, p.complete(row, o)
}

// moment is how long a row waits for an association that need not be opened, on a machine of usual speed. Fences prove
// nothing of SCTP's servers, which answer from goroutines of their own.
const moment = 250 * time.Millisecond

// associate opens an SCTP association. Its wait begins at once and not after fences, so it is longer on slow machines.
func associate(ctx context.Context, row spec.Row, probe traffic.Probe) traffic.Answer {
	wait := machine.Busy(moment)
	if !row.Want.Allows(traffic.Silence) {
		wait = probe.Patience
	}
	ctx, cancel := machine.WithTimeout(ctx, machine.Limit(wait))
	defer cancel()
	return sctp.Probe(ctx, probe)
}

// limited returns the context of one probe.
func limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, probeLimit, fmt.Errorf("the probe's limit of %s is over", probeLimit))
}

// complete adds to an observation the evidence from nodes and servers, and replaces pod names by the scenario's names.
func (p *prober) complete(row spec.Row, o *spec.Observation) error {
	if o.Fault != nil {
		return o.Fault
	}
	o.Server = shortName(p.namespace, o.Server)
	if o.Outcome != traffic.Reply && o.Nonce != "" {
		o.Strays = p.strays(o.Nonce)
	}
	if !row.Flow.Concerns(o.Outcome) {
		return nil
	}
	if !o.Source.IsValid() {
		return spec.HarnessErrorf("no source of a probe whose conntrack entry is judged")
	}
	flow, ok, err := p.Flow(row.Flow.Node, row.Protocol(), observe.Tuple{Src: o.Source, Dst: o.To})
	if ok {
		o.Flow = &flow
	}
	return err
}

// strays returns the servers that received a request although its client got no answer.
func (p *prober) strays(nonce string) []string {
	var out []string
	for _, s := range p.allServers() {
		if slices.ContainsFunc(s.Arrivals(), func(x traffic.Arrival) bool { return x.Nonce == nonce }) {
			out = append(out, shortName(p.namespace, s.Name()))
		}
	}
	return out
}
