// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/viplab/viplab/internal/annotate"
	"github.com/viplab/viplab/internal/lab/ruleset"
	"github.com/viplab/viplab/internal/lab/trace"
	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// tracedCells is how many wrong cells of a case are traced. What breaks one cell breaks many alike.
const tracedCells = 4

// cellTrace is a wrong cell that is fired again.
type cellTrace struct {
	Cell
	verdict *Verdict
	probed  *spec.Probed
	request traffic.Probe
	hit     traffic.Hit
}

// Trace fires the first wrong cells of the last case again, except those that fail as known, and follows their packets.
// It writes each trace as JSON and as text into a folder below out, and adds its path to the result. A cell that cannot
// be traced has the reason in place of its trace.
func (b *Bench) Trace(ctx context.Context, r *spec.Result, verdicts []Verdict, out, folder string) error {
	var errs []error
	number := 0
	for _, c := range tracesTogether(b.wrongCells(r, verdicts)) {
		traces, err := b.traceTogether(ctx, c)
		for i, t := range c {
			number++
			name := filepath.Join(folder, fmt.Sprintf("trace-%d", number))
			var traced *trace.Traced
			if i < len(traces) {
				traced = traces[i]
			}
			if failed := writeTrace(filepath.Join(out, name), t, traced, err); failed != nil {
				errs = append(errs, failed)
				continue
			}
			r.Files = append(r.Files, name+".txt")
			if traced != nil {
				t.probed.Trace = name + ".json"
			}
		}
	}
	return errors.Join(errs...)
}

// wrongCells returns the cells to trace.
func (b *Bench) wrongCells(r *spec.Result, verdicts []Verdict) (cells []*cellTrace) {
	for i := range r.Probed {
		p := &r.Probed[i]
		if p.Known != "" || p.Holds || len(cells) == tracedCells {
			continue
		}
		for j := range verdicts {
			v := &verdicts[j]
			at := slices.IndexFunc(v.Wrong, func(cell int) bool { return v.label(cell) == p.Row })
			if at < 0 || v.Family.String() != p.Family {
				continue
			}
			c := CellAt(v.Wrong[at])
			shot := b.shot(c, v.Family, v.Way)
			cells = append(cells, &cellTrace{Cell: c, verdict: v, probed: p,
				request: traffic.Probe{From: shot.From, To: shot.To, Proto: shot.Proto}})
		}
	}
	return cells
}

// tracesTogether groups cells that one Tracer can record.
func tracesTogether(cells []*cellTrace) (groups [][]*cellTrace) {
	type kind struct {
		family lab.Family
		proto  string
	}
	byKind := map[kind][]*cellTrace{}
	var kinds []kind
	for _, c := range cells {
		k := kind{c.verdict.Family, c.request.Proto}
		if byKind[k] == nil {
			kinds = append(kinds, k)
		}
		byKind[k] = append(byKind[k], c)
	}
	for _, k := range kinds {
		groups = append(groups, byKind[k])
	}
	return groups
}

// traceTogether fires cells of one family and protocol while one Tracer records.
func (b *Bench) traceTogether(ctx context.Context, cells []*cellTrace) ([]*trace.Traced, error) {
	names, err := b.names()
	if err != nil {
		return nil, err
	}
	network := b.traceable(names)
	f, proto := cells[0].verdict.Family, cells[0].request.Proto
	var requests []traffic.Probe
	var shots []traffic.Shot
	for _, c := range cells {
		requests = append(requests, c.request)
		shots = append(shots, traffic.Shot{From: c.request.From, To: c.request.To, Proto: proto})
	}
	tracer, err := network.Start(ctx, f, trace.Select{Proto: proto, Reply: true}, requests...)
	if err != nil {
		return nil, err
	}
	hits, err := b.volleys[f].Fire(ctx, shots)
	if err := errors.Join(err, tracer.End(ctx)); err != nil {
		return nil, err
	}
	var all []*trace.Traced
	for i, c := range cells {
		c.hit = hits[i]
		traced, err := network.Traced(ctx, tracer, trace.Exchange{
			Probe: c.request, To: c.target(), Answer: b.answer(c), Verdict: c.got(), Reply: hits[i].Outcome == traffic.Reply,
		})
		if err != nil {
			return all, fmt.Errorf("%s: %w", c.probed.Probe, err)
		}
		all = append(all, traced)
	}
	return all, nil
}

// answer returns the hit of a cell as the answer to a probe.
func (b *Bench) answer(c *cellTrace) traffic.Answer {
	from := netip.AddrPortFrom(b.addr(c.From, c.verdict.Family), c.hit.Port)
	a := traffic.Answer{Outcome: c.hit.Outcome, Source: from}
	if c.hit.Outcome == traffic.Reply && c.hit.Target < len(Pods) {
		a.Server = Pods[c.hit.Target]
		a.Peer = from
		a.Local = netip.AddrPortFrom(b.addr(c.hit.Target, c.verdict.Family), c.request.To.Port())
	}
	return a
}

// target names what the cell was sent to: "y/b:80", or, through Services, "svc/y/to-b:80".
func (c *cellTrace) target() string {
	to := Pods[c.To]
	if c.verdict.Way == Services {
		s := serviceObject(to)
		to = fmt.Sprintf("svc/%s/%s", s.Namespace, s.Name)
	}
	return fmt.Sprintf("%s:%d", to, Ports[c.Port].Number)
}

// got says what the cell got when it was fired again.
func (c *cellTrace) got() string {
	switch {
	case c.hit.Outcome != traffic.Reply:
		return c.hit.Outcome.String()
	case c.hit.Target < len(Pods):
		return "Reply by " + Pods[c.hit.Target]
	}
	return "Reply by a host that is no pod of the table"
}

// title says which cell was fired again, and whether it is still wrong.
func (c *cellTrace) title() string {
	title := c.probed.Probe + ", sent again: " + c.got()
	blocked, mark := c.verdict.Want[c.Index()], markOf(c.Cell, c.hit)
	if mark == Open && !blocked || (mark == Lost || mark == Refused) && blocked {
		return title + ", as the policies want: the failure did not last"
	}
	return title
}

// writeTrace writes the trace of a cell as path.txt and path.json.
func writeTrace(path string, c *cellTrace, traced *trace.Traced, failed error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	text, err := os.Create(path + ".txt")
	if err != nil {
		return err
	}
	if traced == nil {
		_, err = fmt.Fprintf(text, "%s: no trace: %v\n", c.probed.Probe, failed)
		return errors.Join(err, text.Close())
	}
	_, err = fmt.Fprintf(text, "%s\n\n", c.title())
	if err := errors.Join(err, traced.Print(text), text.Close()); err != nil {
		return err
	}
	encoded, err := json.MarshalIndent(traced, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path+".json", append(encoded, '\n'), 0o644)
}

// traceable returns the bench for traces.
func (b *Bench) traceable(names map[netip.Addr]string) trace.Lab {
	state := b.view.Snapshot()
	network := trace.Lab{
		Enforcer: b.enforcer.Name(), Lab: b.cluster.Lab(), Names: names, Rules: map[string]*ruleset.Ruleset{},
		Conntrack: func(node string) *observe.Conntrack { return b.conntracks[nodeNumber(node)] },
		Annotate: func(node string, r *ruleset.Ruleset) error {
			annotate.New(state, names, b.remarks(node)).All(r)
			return nil
		},
		Explain:   func(t *trace.Traced) { annotate.Explain(state, t) },
		Receivers: func(to netip.AddrPort) []netip.Addr { return annotate.Receivers(state, to) },
	}
	if b.options.Proxier != nil {
		network.Proxier = b.options.Proxier.Name()
	}
	return network
}

// remarks returns what the enforcer says of the rules on a node.
func (b *Bench) remarks(node string) map[string]string {
	all := map[string]string{}
	if r, ok := b.instances[nodeNumber(node)].(kit.Remarker); ok {
		maps.Copy(all, r.Remarks())
	}
	return all
}

func nodeNumber(name string) int {
	return slices.IndexFunc(nodes, func(n lab.NodeSpec) bool { return n.Name == name })
}

// names returns the names of the addresses of pods, Services and nodes.
func (b *Bench) names() (map[netip.Addr]string, error) {
	names := map[netip.Addr]string{}
	for _, n := range b.cluster.Lab().Nodes() {
		addrs, err := n.LocalAddrs()
		if err != nil {
			return nil, err
		}
		for _, a := range addrs {
			names[a] = n.Name()
		}
	}
	for i, pod := range Pods {
		s := serviceObject(pod)
		for _, f := range b.options.Stack.Families() {
			names[b.addr(i, f)] = pod
			if b.options.Proxier != nil {
				names[b.clusterIPs[f][i]] = fmt.Sprintf("svc/%s/%s", s.Namespace, s.Name)
			}
		}
	}
	return names, nil
}
