// SPDX-License-Identifier: Apache-2.0

package netpol_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/viplab/viplab/internal/suite/netpol"
	"github.com/viplab/viplab/internal/suite/netpol/misreading"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/proxiers"
	"github.com/viplab/viplab/proxiers/none"
	"github.com/viplab/viplab/suite/spec"
)

// late behaves like an external enforcer: it does not log drops, and Apply returns before it has converged. It applies
// a state only after the node has forwarded packets under the state before.
type late struct{ spec.Proxier }

func (l late) Features() spec.FeatureSet { return spec.Features(spec.NetworkPolicy) }

func (l late) Start(ctx context.Context, n spec.Node) (spec.Instance, error) {
	in, err := l.Proxier.Start(ctx, n)
	if err != nil {
		return nil, err
	}
	packets, err := observe.StartCapture(n.Host.NS)
	if err != nil {
		return nil, err
	}
	i := &lateInstance{Instance: in, packets: packets, states: make(chan *store.Snapshot, 16), done: make(chan error, 1)}
	stoppable, stop := context.WithCancel(context.WithoutCancel(ctx))
	i.stop = stop
	go func() { i.done <- i.run(stoppable) }()
	return i, nil
}

type lateInstance struct {
	spec.Instance
	packets *observe.Capture
	states  chan *store.Snapshot
	stop    context.CancelFunc
	done    chan error
}

func (i *lateInstance) Apply(_ context.Context, s *store.Snapshot) error {
	i.packets.Take() // those before this state
	i.states <- s
	return nil
}

// run applies each state after the first packets that follow it.
func (i *lateInstance) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-i.states:
			if observe.Await(ctx, nil, i.hasForwarded) != nil {
				return nil
			}
			if err := i.Instance.Apply(ctx, s); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

func (i *lateInstance) hasForwarded(context.Context) error {
	for _, f := range i.packets.Take() {
		if p, err := observe.Decode(f); err == nil && p.Proto == "udp" && p.Dst.Port() == uint16(netpol.Ports[1].Number) {
			return nil
		}
	}
	return errors.New("no packet to a pod yet")
}

func (i *lateInstance) Stop(ctx context.Context) error {
	i.stop()
	return errors.Join(<-i.done, i.Instance.Stop(ctx), i.packets.Close())
}

func benchOf(t *testing.T, e spec.Proxier, o netpol.Options) (*netpol.Bench, map[string]netpol.Case) {
	t.Helper()
	cases, err := netpol.Static()
	if err != nil {
		t.Fatal(err)
	}
	byID := map[string]netpol.Case{}
	for _, c := range cases {
		byID[c.ID] = c
	}
	if o.NamedPorts, err = netpol.NamesOf(cases); err != nil {
		t.Fatal(err)
	}
	b, err := netpol.NewBench(t.Context(), e, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b, byID
}

// Tables of an enforcer that does not report convergence are fired until they are right. Its denied cells have
// evidence, too.
func TestAnEnforcerThatConvergesLateAndLogsNothing(t *testing.T) {
	b, cases := benchOf(t, late{proxiers.Enforcers()[0]}, netpol.Options{Stack: lab.IPv4, PodNetwork: lab.Routed,
		Patience: time.Minute})
	for _, id := range []string{"BASE-01", "STK-16", "STK-15", "DIR-11", "PORT-I05"} {
		verdicts, err := b.Judge(t.Context(), cases[id])
		if verdict, wrong := netpol.SumUp(verdicts, err); verdict != spec.Pass {
			t.Errorf("%s: %s: %v", id, verdict, wrong)
		}
		for _, v := range verdicts {
			if strings.Contains(string(marks(v.Marks)), "?") {
				t.Errorf("%s: silence without evidence", id)
			}
		}
	}
}

// An enforcer that misreads policies fails when patience ends, with cells that are open or dropped, but not lost.
func TestPatienceEnds(t *testing.T) {
	readings := misreading.Given()
	i := slices.IndexFunc(readings, func(r misreading.Reading) bool { return r.Name == "ingress-not-implemented" })
	b, cases := benchOf(t, late{proxiers.Enforcers()[0]}, netpol.Options{Stack: lab.IPv4, PodNetwork: lab.Routed,
		Patience: 5 * time.Second, Misreading: &readings[i]})
	verdicts, err := b.Judge(t.Context(), cases["TGT-02"])
	if verdict, wrong := netpol.SumUp(verdicts, err); verdict != spec.Fail ||
		!strings.Contains(wrong.Error(), "x/b>x/a:80/TCP: ., want X") {
		t.Errorf("%s: %v", verdict, wrong)
	}
}

// Through Services, policies have the same effect with every proxier.
func TestTablesThroughServices(t *testing.T) {
	for _, name := range []string{"iptables", "nftables"} {
		t.Run(name, func(t *testing.T) {
			found, err := proxiers.Find(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := found[0].Usable(t.Context()); err != nil {
				t.Skip(err)
			}
			b, cases := benchOf(t, proxiers.Enforcers()[0], netpol.Options{Stack: lab.Dual, PodNetwork: lab.Routed,
				Proxier: found[0]})
			for _, id := range []string{"BASE-01", "STK-15", "STK-16", "PEER-I6", "PORT-34", "IPB-10"} {
				verdicts, err := b.Judge(t.Context(), cases[id])
				if verdict, wrong := netpol.SumUp(verdicts, err); verdict != spec.Pass || len(verdicts) != 4 {
					t.Errorf("%s: %s in %d tables: %v", id, verdict, len(verdicts), wrong)
				}
				for _, v := range verdicts {
					if unasked := strings.Count(string(marks(v.Marks)), " "); unasked != map[netpol.Way]int{netpol.Direct: 0,
						netpol.Services: 36}[v.Way] {
						t.Errorf("%s %s: %d cells were not probed", id, v.Title(), unasked)
					}
				}
			}
		})
	}
}

func marks(s netpol.Marks) []byte {
	var out []byte
	for _, m := range s {
		out = append(out, byte(m))
	}
	return out
}

// willful is an enforcer that does nothing, and that must not be asked to stop.
type willful struct {
	spec.Proxier
	killed *atomic.Int64
}

func (w willful) Start(ctx context.Context, n spec.Node) (spec.Instance, error) {
	in, err := w.Proxier.Start(ctx, n)
	return willfulInstance{in, w.killed}, err
}

type willfulInstance struct {
	spec.Instance
	killed *atomic.Int64
}

func (i willfulInstance) Stop(context.Context) error { return errors.New("it was asked to stop") }

func (i willfulInstance) Kill(ctx context.Context) error {
	i.killed.Add(1)
	return errors.Join(ctx.Err(), i.Instance.Kill(ctx))
}

// One that ignores SIGTERM would hold an interrupted run until its grace is over.
func TestAnInterruptedRunDoesNotStopEnforcersGently(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	killed := new(atomic.Int64)
	pool, err := netpol.NewPool(ctx, 1, willful{none.New(), killed}, netpol.Options{Stack: lab.IPv4, Overlay: lab.VXLAN})
	if err != nil {
		t.Fatal(err)
	}
	interrupt()
	if err := pool.Close(ctx); err != nil || killed.Load() != 3 {
		t.Errorf("%v; %d enforcers were killed, want 3", err, killed.Load())
	}
}
