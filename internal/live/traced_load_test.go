// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/viplab/viplab/internal/lab/nstest"
	"github.com/viplab/viplab/internal/lab/trace"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/traffic"
)

// The same question gets the same walk while others send to the same Service, also from the same place.
func TestTheSameWalkUnderLoad(t *testing.T) {
	l := newTracedLab(t, nil)
	for _, name := range []string{"iptables", "iptables-legacy", "nftables", "userspace"} {
		t.Run(name, func(t *testing.T) {
			l.run(t, name)
			for _, args := range []ProbeArgs{
				{From: Place{Name: client}, To: "n1:30080"},
				{From: Place{Name: pod}, To: "far:udp", Proto: "udp"},
			} {
				if args.Proto == "udp" && name == "userspace" {
					continue // the relay may use a port that connection tracking knows
				}
				quiet := shape(l.unclashed(t, args))
				stop := l.load(t)
				for range 3 * rounds(t) {
					if got := shape(l.unclashed(t, args)); !slices.Equal(got, quiet) {
						t.Errorf("under load:\n%s", difference(strings.Join(quiet, "\n"), strings.Join(got, "\n")))
					}
				}
				stop()
			}
		})
	}
}

// unclashed traces until no port clashes: a relay may draw a port that connection tracking knows of one of its former
// connections. The kernel then changes the port, and the trace shows that.
func (l *tracedLab) unclashed(t *testing.T, args ProbeArgs) *Traced {
	t.Helper()
	portChanges := func(s trace.Step) bool {
		return s.After != nil && s.After.Src.Addr() == s.Before.Src.Addr() && s.After.Src != s.Before.Src
	}
	for ctx := Within(t); ; {
		r := l.traced(t, TraceArgs{ProbeArgs: args, Reply: true})
		clash := slices.ContainsFunc(r.Walks(), func(w *trace.Walk) bool {
			return slices.ContainsFunc(w.Steps, portChanges)
		})
		if !clash || ctx.Err() != nil {
			return r
		}
	}
}

// loadPause is the time between requests of a sender.
const loadPause = 5 * time.Millisecond

// load sends requests to the Service far, one after the other from each of some places, until the returned function is
// called. Datagrams come from other places than those that are traced: connection tracking would know their ports.
func (l *tracedLab) load(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var sending sync.WaitGroup
	network := l.standing.Cluster().Lab()
	for _, each := range []struct {
		from      *netns.NS
		proto, to string
	}{
		{network.Client().NS, "tcp", "n1:30080"}, {network.Client().NS, "udp", "n1:30053"},
		{network.Pod(pod).NS, "tcp", "svc/far"},
		{network.Pod(near).NS, "tcp", "svc/far"}, {network.Pod(near).NS, "udp", "far:udp"},
	} {
		target, err := l.target(each.to, "")
		Must(t, err)
		address, err := target.addr(network.Stack().Families()[0])
		Must(t, err)
		sending.Go(func() {
			next := time.NewTicker(loadPause)
			defer next.Stop()
			for ctx.Err() == nil {
				traffic.Probe{From: each.from, To: address, Proto: each.proto}.Do(ctx)
				<-next.C
			}
		})
	}
	return func() { cancel(); sending.Wait() }
}

// drawn matches ports that are not those of the manifest: the kernel draws them.
var drawn = regexp.MustCompile(`:(\d{4,5})\b`)

// shape returns what a trace says of each packet, without what the kernel draws anew for each connection.
func shape(r *Traced) (all []string) {
	mask := func(text string) string {
		return drawn.ReplaceAllStringFunc(text, func(port string) string {
			if slices.Contains([]string{":30080", ":8080", ":5300"}, port) {
				return port
			}
			return ":PORT"
		})
	}
	all = append(all, r.Outcome)
	for i, w := range r.Walks() {
		for _, s := range w.Steps {
			text := fmt.Sprint(i, " ", s.Place, " ", s.Device, " ", s.Direction, " ", s.Packet, " ", s.Kernel, " ", s.About)
			if s.Device == "" {
				text += " " + s.String()
			}
			text += " | " + line(s.Place, s.Hook, s.Before)
			if s.After != nil {
				text += " | " + line(s.Place, s.Hook, *s.After)
			}
			all = append(all, mask(text))
		}
	}
	return all
}
