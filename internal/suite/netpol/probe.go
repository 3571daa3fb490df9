// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/viplab/viplab/internal/suite/netpol/oracle"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// Mark is the result of a cell's probe.
type Mark byte

// The marks, which tables print.
const (
	Open     Mark = '.' // the right pod answered
	Dropped  Mark = 'X' // the packet was dropped, and there is evidence for it
	Refused  Mark = 'R' // a RST or an ICMP error came back
	Lost     Mark = '?' // no answer, and no evidence of a drop
	Wrong    Mark = 'W' // another pod answered
	Arrived  Mark = 'A' // the packet arrived, and the answer was dropped
	Unprobed Mark = ' ' // the cell was not probed
)

// Marks holds the marks of all cells.
type Marks [Cells]Mark

func protoOf(p Port) string { return strings.ToLower(string(p.Protocol)) }

// Way is how a table reaches its targets.
type Way string

// The ways to reach a target.
const (
	Direct   Way = ""                 // at the pods' own addresses
	Services Way = "through Services" // at the ClusterIP of a Service for each pod
)

// probe fires a table in one family. The API leaves open whether a pod may reach itself through its own Service, so
// those cells stay Unprobed.
func (b *Bench) probe(ctx context.Context, f lab.Family, way Way) (*Marks, error) {
	if _, err := b.evidence.drain(); err != nil { // leftovers of applying the policies
		return nil, err
	}
	var marks Marks
	var cells []int
	var shots []traffic.Shot
	for i := range marks {
		c := CellAt(i)
		marks[i] = Unprobed
		if way == Direct || !c.Self() {
			cells, shots = append(cells, i), append(shots, b.shot(c, f, way))
		}
	}
	hits, err := b.volleys[f].Fire(ctx, shots)
	if err != nil {
		return nil, err
	}
	classify, err := b.evidence.drain()
	if err != nil {
		return nil, err
	}
	for i, hit := range hits {
		c := CellAt(cells[i])
		marks[cells[i]] = markOf(c, hit)
		if marks[cells[i]] == Lost {
			from := netip.AddrPortFrom(b.addr(c.From, f), hit.Port)
			to := netip.AddrPortFrom(b.addr(c.To, f), shots[i].To.Port())
			marks[cells[i]] = classify(flowKey{shots[i].Proto, from, shots[i].To}, flowKey{shots[i].Proto, from, to})
		}
	}
	return &marks, nil
}

func (b *Bench) shot(c Cell, f lab.Family, way Way) traffic.Shot {
	port, to := Ports[c.Port], b.addr(c.To, f)
	if way == Services {
		to = b.clusterIPs[f][c.To]
	}
	return traffic.Shot{From: b.ns(c.From), To: netip.AddrPortFrom(to, uint16(port.Number)), Proto: protoOf(port)}
}

// addr returns the address of a pod, by its number in Pods.
func (b *Bench) addr(pod int, f lab.Family) netip.Addr { return b.cluster.Lab().Pod(Pods[pod]).Addr(f) }

func markOf(c Cell, hit traffic.Hit) Mark {
	switch {
	case hit.Outcome == traffic.Reply && hit.Target == c.To:
		return Open
	case hit.Outcome == traffic.Reply:
		return Wrong
	case hit.Outcome == traffic.Silence:
		return Lost
	}
	return Refused
}

// judge compares marks with the oracle's table.
func judge(want *Table, marks *Marks) (wrong []int, verdict spec.Verdict) {
	verdict = spec.Pass
	for i, mark := range marks {
		switch {
		case mark == Unprobed:
			continue
		case mark == Lost: // without evidence of a drop, the lab may have lost the packet
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
	c.NamedPorts = b.options.NamedPorts
	right, err := c.Cluster(b.options.Stack)
	if err != nil {
		return nil, err
	}
	fire := b.fireTables
	if b.options.Patience > 0 {
		if err := b.applyOpposite(ctx, right); err != nil {
			return nil, err
		}
		fire = b.fireUntilRight
	}
	if err := b.apply(ctx, c.Policies, b.options.Misreading); err != nil {
		return nil, err
	}
	return fire(ctx, right)
}

// SumUp returns the verdict on a case from all its tables, with the failures as an error. An enforcer that cannot apply
// the policies fails.
func SumUp(verdicts []Verdict, err error) (spec.Verdict, error) {
	if refused := (*ApplyError)(nil); errors.As(err, &refused) {
		return spec.Fail, err
	}
	if err != nil {
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

// Verdict is the verdict on a table in one family.
type Verdict struct {
	Family  lab.Family
	Way     Way
	Want    Table
	Marks   Marks
	Wrong   []int // cells
	Verdict spec.Verdict
	// Took is the time from the first packet to the last answer or piece of evidence.
	Took time.Duration
}

// Differences names the first few cells that contradict the policies.
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
		out = append(out, fmt.Sprintf("%s: %c, want %c", CellAt(i), v.Marks[i], want))
	}
	return strings.Join(out, "; ")
}

// Title returns the family, and the way unless it is Direct.
func (v *Verdict) Title() string { return strings.TrimSpace(fmt.Sprintf("%s %s", v.Family, v.Way)) }

// fireTables fires the tables of all families and ways, and compares them with the oracle.
func (b *Bench) fireTables(ctx context.Context, right *oracle.Cluster) ([]Verdict, error) {
	ways := []Way{Direct}
	if b.options.Proxier != nil {
		ways = append(ways, Services)
	}
	var out []Verdict
	for _, f := range b.options.Stack.Families() {
		want := tableOf(right, f)
		for _, way := range ways {
			began := time.Now()
			marks, err := b.probe(ctx, f, way)
			if err != nil {
				return nil, err
			}
			v := Verdict{Family: f, Way: way, Want: want, Marks: *marks, Took: time.Since(began)}
			v.Wrong, v.Verdict = judge(&v.Want, marks)
			out = append(out, v)
		}
	}
	return out, nil
}
