// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/viplab/viplab/internal/suite/netpol/misread"
	"github.com/viplab/viplab/internal/suite/netpol/oracle"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// Mark is what was seen of a cell.
type Mark byte

// The marks, as tables print them.
const (
	Open    Mark = '.' // the right pod answered
	Dropped Mark = 'X' // the packet was dropped, and there is evidence for it
	Refused Mark = 'R' // a RST or an ICMP error came back
	Lost    Mark = '?' // silence, and nobody can be shown to have dropped the packet
	Wrong   Mark = 'W' // another pod answered
	Arrived Mark = 'A' // the packet has arrived, and the answer was dropped
	Unasked Mark = ' ' // the cell was not probed
)

// Seen is what came of every cell.
type Seen [Cells]Mark

func protoOf(p Port) string { return strings.ToLower(string(p.Protocol)) }

// Way is how a table reaches its targets.
type Way string

// The ways.
const (
	Direct   Way = ""                 // at the pods' own addresses
	Services Way = "through Services" // at that of a Service of each pod
)

// ways are those of the bench.
func (b *Bench) ways() []Way {
	if b.options.Proxier == nil {
		return []Way{Direct}
	}
	return []Way{Direct, Services}
}

// Probe fires a table in one family. What becomes of a pod that calls itself through its Service, the API leaves open:
// those cells are not probed, and Unasked.
func (b *Bench) Probe(ctx context.Context, f lab.Family, way Way) (*Seen, error) {
	if _, err := b.evidence.collect(); err != nil { // what is left of the change of policies
		return nil, err
	}
	var seen Seen
	var cells []int
	var shots []traffic.Shot
	for i := range seen {
		c := CellAt(i)
		seen[i] = Unasked
		if way == Direct || !c.Self() {
			cells, shots = append(cells, i), append(shots, b.shot(c, f, way))
		}
	}
	hits, err := b.volleys[f].Fire(ctx, shots)
	if err != nil {
		return nil, err
	}
	became, err := b.evidence.collect()
	if err != nil {
		return nil, err
	}
	for i, hit := range hits {
		c := CellAt(cells[i])
		seen[cells[i]] = markOf(c, hit)
		if seen[cells[i]] == Lost {
			from := netip.AddrPortFrom(b.addr(c.From, f), hit.Port)
			to := netip.AddrPortFrom(b.addr(c.To, f), shots[i].To.Port())
			seen[cells[i]] = became(flowKey{shots[i].Proto, from, shots[i].To}, flowKey{shots[i].Proto, from, to})
		}
	}
	return &seen, nil
}

// shot is the probe of a cell.
func (b *Bench) shot(c Cell, f lab.Family, way Way) traffic.Shot {
	port, to := Ports[c.Port], b.addr(c.To, f)
	if way == Services {
		to = b.services.addrs[f][c.To]
	}
	return traffic.Shot{From: b.ns(c.From), To: netip.AddrPortFrom(to, uint16(port.Number)), Proto: protoOf(port)}
}

// addr is the address of a pod, by its number in Pods.
func (b *Bench) addr(pod int, f lab.Family) netip.Addr { return b.cluster.Lab().Pod(Pods[pod]).Addr(f) }

func markOf(c Cell, hit traffic.Hit) Mark {
	switch {
	case hit.Outcome == traffic.Reply && hit.By == c.To:
		return Open
	case hit.Outcome == traffic.Reply:
		return Wrong
	case hit.Outcome == traffic.Silence:
		return Lost
	}
	return Refused
}

// judge compares what was seen with what the policies say.
func judge(want *Table, seen *Seen) (wrong []int, verdict spec.Verdict) {
	verdict = spec.Pass
	for i, mark := range seen {
		switch {
		case mark == Unasked:
			continue
		case mark == Lost: // a drop that nobody owns up to may be a fault of the lab
			if verdict == spec.Pass {
				verdict = spec.Broken
			}
		case mark == Open && !want[i], (mark == Dropped || mark == Refused) && want[i]:
			continue
		default:
			verdict = spec.Fail
		}
		wrong = append(wrong, i)
	}
	return wrong, verdict
}

// Judge applies a case and probes it in every family.
func (b *Bench) Judge(ctx context.Context, c Case) ([]Verdict, error) {
	return b.JudgeMisread(ctx, c, b.options.Misread)
}

// JudgeMisread judges enforcers that get what a reading takes the policies for.
func (b *Bench) JudgeMisread(ctx context.Context, c Case, reading *misread.Reading) ([]Verdict, error) {
	if b.options.Patience > 0 {
		return b.judgePatiently(ctx, c, reading)
	}
	judged, err := b.apply(ctx, c, reading)
	if err != nil {
		return nil, err
	}
	return b.compare(ctx, judged)
}

// Passes is the verdict on a case in all families, with what is wrong as an error.
func (b *Bench) Passes(ctx context.Context, c Case) (spec.Verdict, error) {
	verdicts, err := b.Judge(ctx, c)
	return SumUp(verdicts, err)
}

// SumUp is the verdict on what came of a case, with what is wrong as an error. An enforcer that does not take policies
// fails.
func SumUp(verdicts []Verdict, err error) (spec.Verdict, error) {
	if err != nil {
		var refused *ApplyError
		if errors.As(err, &refused) {
			return spec.Fail, err
		}
		return spec.Broken, err
	}
	sum := spec.Pass
	var wrong []string
	for _, v := range verdicts {
		if v.Verdict == spec.Pass {
			continue
		}
		wrong = append(wrong, fmt.Sprintf("%s: %s", v.Title(), v.Differences()))
		if sum != spec.Fail {
			sum = v.Verdict
		}
	}
	if sum == spec.Pass {
		return sum, nil
	}
	return sum, errors.New(strings.Join(wrong, "\n"))
}

// Verdict is what came of a table in one family.
type Verdict struct {
	Family  lab.Family
	Way     Way
	Want    Table
	Seen    Seen
	Wrong   []int // cells
	Verdict spec.Verdict
	// Took is the time from the first packet to the last answer or piece of evidence.
	Took time.Duration
}

// Differences names the first few cells that are not as the policies say.
func (v *Verdict) Differences() string {
	var out []string
	for _, i := range v.Wrong {
		if len(out) == 5 {
			out = append(out, fmt.Sprintf("... (%d cells)", len(v.Wrong)))
			break
		}
		want := Open
		if v.Want[i] {
			want = Dropped
		}
		out = append(out, fmt.Sprintf("%s: %c, want %c", CellAt(i), v.Seen[i], want))
	}
	return strings.Join(out, "; ")
}

// Title is the family, and the way if it is not the direct one.
func (v *Verdict) Title() string { return strings.TrimSpace(fmt.Sprintf("%s %s", v.Family, v.Way)) }

func (b *Bench) compare(ctx context.Context, judged *oracle.Cluster) ([]Verdict, error) {
	var out []Verdict
	for _, f := range b.options.Stack.Families() {
		want := tableOf(judged, f)
		for _, way := range b.ways() {
			began := time.Now()
			seen, err := b.Probe(ctx, f, way)
			if err != nil {
				return nil, err
			}
			v := Verdict{Family: f, Way: way, Want: want, Seen: *seen, Took: time.Since(began)}
			v.Wrong, v.Verdict = judge(&v.Want, seen)
			out = append(out, v)
		}
	}
	return out, nil
}
