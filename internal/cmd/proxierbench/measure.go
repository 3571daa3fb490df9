// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/viplab/viplab/internal/cmd/bench"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// row is what one proxier takes to serve a number of Services. Times are in milliseconds, those of changes medians.
type row struct {
	Proxier  string `json:"proxier"`
	Services int    `json:"services"`
	// from the start of the proxier to the first packet answered by the last Service
	First   float64 `json:"firstSyncMs"`
	Added   float64 `json:"addedMs"`   // from the event to the first packet answered
	Changed float64 `json:"changedMs"` // from other endpoints to the first packet answered by one of them
	Removed float64 `json:"removedMs"` // from the event to the first packet not answered
	Memory  float64 `json:"memoryMiB"` // of a process its resident set, of a built-in proxier what the heap grew by
	Connect float64 `json:"connectUs"` // a connection and an exchange through the last Service
	Direct  float64 `json:"directUs"`  // the same to a pod, without a Service
	Stop    float64 `json:"stopMs"`
	Failed  string  `json:"failed,omitempty"`
}

// cellLimit bounds one cell: kube-proxy's first sync of 10,000 Services in iptables-nft takes three minutes and more.
const cellLimit = 20 * time.Minute

// relayPatience is longer than a relay takes to connect, and to answer, on any machine.
const relayPatience = time.Second

// connections is how many connections are timed.
const connections = 300

func measure(ctx context.Context, s subject, services, rounds int) (r row, err error) {
	r = row{Proxier: s.name, Services: services}
	ctx, cancel := context.WithTimeoutCause(ctx, cellLimit, fmt.Errorf("%v are over", cellLimit))
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	if err := s.proxier.Usable(ctx); err != nil {
		return r, err
	}
	w, err := newWorld(ctx, services)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, w.Close(), os.RemoveAll(w.dir)) }()
	w.relayed = !s.proxier.Features()[spec.KernelNAT]
	last, err := w.vip("last")
	if err != nil {
		return r, err
	}
	before := heap()
	began := time.Now()
	in, err := s.proxier.Start(ctx, w.place())
	if err != nil {
		return r, err
	}
	stop := func() error { return in.Stop(context.WithoutCancel(ctx)) }
	if !s.outside {
		stop = follow(ctx, in, w.Store(), fail)
	}
	defer func() {
		began := time.Now()
		err = errors.Join(err, stop())
		r.Stop = bench.Milliseconds(time.Since(began))
	}()
	first, err := w.until(ctx, began, last, answered)
	if err != nil {
		return r, err
	}
	r.First = bench.Milliseconds(first)
	if err := r.changes(ctx, w, rounds); err != nil {
		return r, err
	}
	if s.outside {
		r.Memory = mib(residentChildren())
	} else {
		r.Memory = mib(max(heap()-before, 0))
	}
	return r, r.connect(ctx, w, last)
}

// follow applies every state to the instance, as the conformance suite does, until that fails. The result ends it and
// stops the instance.
func follow(ctx context.Context, in spec.Instance, store *store.Store,
	fail context.CancelCauseFunc) (stop func() error) {
	following, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			s := store.Snapshot()
			if err := in.Apply(following, s); err != nil && following.Err() == nil {
				fail(err)
				return
			}
			select {
			case <-store.Changed(s.Revision):
			case <-following.Done():
				return
			}
		}
	}()
	return func() error {
		cancel()
		<-done
		return in.Stop(context.WithoutCancel(ctx))
	}
}

// changes adds a Service, gives it other endpoints, and takes it away, over and over.
func (r *row) changes(ctx context.Context, w *world, rounds int) error {
	var added, changed, removed []time.Duration
	for range rounds {
		if err := w.Store().Apply(service("extra", "a")); err != nil {
			return err
		}
		at := time.Now()
		vip, err := w.vip("extra")
		if err != nil {
			return err
		}
		steps := []struct {
			took   *[]time.Duration
			change func() error
			wanted func(traffic.Answer) bool
		}{
			{&added, func() error { return nil }, answered},
			{&changed, func() error { return w.Store().Apply(service("extra", "b")) }, answeredBy(namespace + "/b-")},
			{&removed, func() error { return w.Store().Delete(store.KindService, namespace, "extra") }, unanswered},
		}
		for i, s := range steps {
			if err := s.change(); err != nil {
				return err
			}
			if i > 0 {
				at = time.Now()
			}
			took, err := w.until(ctx, at, vip, s.wanted)
			// it was slow, not gone
			for err == nil && s.took == &removed && answered(w.probe(ctx, vip, relayPatience)) {
				took, err = w.until(ctx, at, vip, s.wanted)
			}
			if err != nil {
				return err
			}
			*s.took = append(*s.took, took)
		}
	}
	r.Added, r.Changed, r.Removed = bench.MedianMS(added), bench.MedianMS(changed), bench.MedianMS(removed)
	return nil
}

func answered(a traffic.Answer) bool   { return a.Outcome == traffic.Reply }
func unanswered(a traffic.Answer) bool { return a.Outcome != traffic.Reply }

func answeredBy(prefix string) func(traffic.Answer) bool {
	return func(a traffic.Answer) bool { return answered(a) && strings.HasPrefix(a.Server, prefix) }
}

// connect times connections through a Service and past it, in turn.
func (r *row) connect(ctx context.Context, w *world, vip netip.AddrPort) error {
	direct := netip.AddrPortFrom(w.Lab().Pod(namespace+"/a-1").Addr(lab.V4), 8080)
	var through, past []time.Duration
	for range connections {
		for to, took := range map[netip.AddrPort]*[]time.Duration{vip: &through, direct: &past} {
			a := w.probe(ctx, to, relayPatience)
			if a.Fault != nil || a.Outcome != traffic.Reply {
				return fmt.Errorf("%s: %s", to, a)
			}
			*took = append(*took, a.Took)
		}
	}
	r.Connect, r.Direct = bench.Microseconds(bench.Median(through)), bench.Microseconds(bench.Median(past))
	return nil
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// residentChildren returns the resident memory of all processes in the sandbox but this one and the first.
func residentChildren() int64 {
	var sum int64
	files, _ := filepath.Glob("/proc/[0-9]*/statm")
	for _, file := range files {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		text, err := os.ReadFile(file)
		fields := strings.Fields(string(text))
		if err != nil || len(fields) < 2 || pid == 1 || pid == os.Getpid() {
			continue // it has ended
		}
		pages, _ := strconv.ParseInt(fields[1], 10, 64)
		sum += pages * int64(os.Getpagesize())
	}
	return sum
}
