package netpol

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/lab/watch"
	"github.com/viplab/viplab/suite/netpol/misread"
	"github.com/viplab/viplab/suite/netpol/oracle"
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
)

// Seen is what came of every cell.
type Seen [Cells]Mark

func protoOf(p Port) string { return strings.ToLower(string(p.Protocol)) }

// Probe fires a table in one family.
func (b *Bench) Probe(ctx context.Context, f lab.Family) (*Seen, error) {
	if _, err := b.logged(); err != nil { // what is left of the change of policies
		return nil, err
	}
	shots := make([]traffic.Shot, Cells)
	for i := range shots {
		c := CellAt(i)
		port := Ports[c.Port]
		to := b.cluster.Lab().Pod(Pods[c.To]).Addr(f)
		shots[i] = traffic.Shot{From: b.ns(c.From), To: netip.AddrPortFrom(to, uint16(port.Number)), Proto: protoOf(port)}
	}
	hits, err := b.volleys[f].Fire(ctx, shots)
	if err != nil {
		return nil, err
	}
	dropped, err := b.logged()
	if err != nil {
		return nil, err
	}
	var seen Seen
	for i, hit := range hits {
		seen[i] = markOf(CellAt(i), hit)
		from := netip.AddrPortFrom(b.cluster.Lab().Pod(Pods[CellAt(i).From]).Addr(f), hit.Port)
		if seen[i] != Lost {
			continue
		}
		switch proto, to := shots[i].Proto, shots[i].To; {
		case dropped[flowKey{proto, from, to}]:
			seen[i] = Dropped
		case dropped[flowKey{proto, to, from}]:
			seen[i] = Arrived
		}
	}
	return &seen, nil
}

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

// flowKey is what tells the packets of one cell from all others.
type flowKey struct {
	proto    string
	from, to netip.AddrPort
}

// logged are the packets that enforcers say they have dropped since they were last asked.
func (b *Bench) logged() (map[flowKey]bool, error) {
	out := map[flowKey]bool{}
	for _, l := range b.logs {
		packets, err := l.Drain()
		if err != nil {
			return nil, err
		}
		for _, p := range packets {
			if !strings.HasPrefix(p.Prefix, "DPI|") && !strings.HasPrefix(p.Prefix, "DPE|") {
				continue
			}
			d, err := watch.DecodeIP(p.Packet)
			if err != nil {
				return nil, fmt.Errorf("a logged packet: %w", err)
			}
			out[flowKey{d.Proto, d.Src, d.Dst}] = true
		}
	}
	return out, nil
}

// judge compares what was seen with what the policies say.
func judge(want *Table, seen *Seen) (wrong []int, verdict spec.Verdict) {
	verdict = spec.Pass
	for i, mark := range seen {
		switch {
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

// SumUp is the verdict on what came of a case, with what is wrong as an error. An enforcer that does not take policies fails.
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
		wrong = append(wrong, fmt.Sprintf("%s: %s", v.Family, v.Differences()))
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

func (b *Bench) compare(ctx context.Context, judged *oracle.Cluster) ([]Verdict, error) {
	var out []Verdict
	for _, f := range b.options.Stack.Families() {
		began := time.Now()
		seen, err := b.Probe(ctx, f)
		if err != nil {
			return nil, err
		}
		v := Verdict{Family: f, Want: tableOf(judged, f), Seen: *seen, Took: time.Since(began)}
		v.Wrong, v.Verdict = judge(&v.Want, seen)
		out = append(out, v)
	}
	return out, nil
}
