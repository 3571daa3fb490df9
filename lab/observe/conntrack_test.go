// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	. "github.com/viplab/viplab/internal/lab/nstest"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/traffic"
)

// newTracked returns a world whose router translates, and the connections that the router tracks.
func newTracked(t *testing.T) (*world, *Conntrack) {
	t.Helper()
	w := newWorld(t)
	serve(t, w)
	NFT(t, w.router, nat)
	// The usual 30 s may be over before a busy machine has looked.
	Must(t, w.router.SetSysctls(netns.Setting{Key: "net.netfilter.nf_conntrack_udp_timeout", Value: "600"}))
	ct, err := NewConntrack(w.router)
	Must(t, err)
	t.Cleanup(func() { ct.Close() })
	return w, ct
}

func TestFlows(t *testing.T) {
	w, ct := newTracked(t)
	for _, f := range families {
		for _, proto := range []string{"tcp", "udp"} {
			_, a := open(t, w, proto, f.vip)
			flows, err := ct.Flows(Within(t), func(x Flow) bool { return x.Orig.Src == a.Source && x.Proto == proto })
			Must(t, err)
			if len(flows) != 1 {
				t.Fatalf("%s: %v", proto, flows)
			}
			flow := flows[0]
			want := Flow{
				Proto: proto, Orig: Tuple{a.Source, f.vip}, Reply: Tuple{netip.AddrPortFrom(f.server, 80), a.Peer},
				Status: flow.Status, Timeout: flow.Timeout, TCPState: map[string]string{"tcp": "ESTABLISHED"}[proto],
			}
			if flow != want || !flow.DNAT() || !flow.Replied() || flow.Timeout <= 0 {
				t.Errorf("got %+v\nwant %+v", flow, want)
			}
			if flow.SNAT() != (proto == "udp") || flow.Assured() != (proto == "tcp") {
				t.Errorf("SNAT %v, assured %v: %s", flow.SNAT(), flow.Assured(), flow)
			}
			found, ok, err := ct.Flow(proto, flow.Orig)
			if found.Timeout = flow.Timeout; err != nil || !ok || found != flow {
				t.Errorf("looked up: %+v, %v, %v", found, ok, err)
			}
			if found, ok, err := ct.Flow(proto, flow.Reply); err != nil || ok {
				t.Errorf("a connection that was opened by the server: %+v, %v", found, err)
			}
			Must(t, ct.Delete(flow))
			Must(t, ct.Delete(flow)) // gone already
			if found, ok, err := ct.Flow(proto, flow.Orig); err != nil || ok {
				t.Errorf("after its end: %+v, %v", found, err)
			}
			flows, err = ct.Flows(Within(t), nil)
			Must(t, err)
			for _, rest := range flows {
				if rest.Orig == flow.Orig && rest.Proto == flow.Proto {
					t.Errorf("%s is still there", rest)
				}
			}
		}
	}
}

// Those who ask at the same time share listings, and each sees what was there when it asked.
func TestFlowsAskedForByMany(t *testing.T) {
	w, ct := newTracked(t)
	var all sync.WaitGroup
	for range 4 {
		for range 10 {
			_, a := open(t, w, "udp", families[0].vip)
			all.Go(func() {
				flows, err := ct.Flows(t.Context(), func(x Flow) bool { return x.Orig.Src == a.Source })
				if err != nil || len(flows) != 1 {
					t.Errorf("the flow from %s: %v, %v", a.Source, flows, err)
				}
			})
		}
		all.Wait()
	}
}

func TestFlowString(t *testing.T) {
	f := Flow{
		Proto:    "tcp",
		Orig:     Tuple{netip.MustParseAddrPort("10.1.1.1:4"), netip.MustParseAddrPort("10.96.0.1:80")},
		Reply:    Tuple{netip.MustParseAddrPort("10.244.1.2:8080"), netip.MustParseAddrPort("10.1.1.1:4")},
		TCPState: "ESTABLISHED", Status: 2, Mark: 0x4000,
	}
	want := "tcp 10.1.1.1:4 -> 10.96.0.1:80 | 10.244.1.2:8080 -> 10.1.1.1:4 ESTABLISHED mark=0x4000"
	if f.String() != want {
		t.Errorf("got  %s\nwant %s", f, want)
	}
}

// The tuple of an ICMP flow survives the way through Flow, or it could not be deleted.
func TestDeleteEcho(t *testing.T) {
	w, ct := newTracked(t)
	NFT(t, w.router, "table inet closed { chain forward { type filter hook forward priority 0; th dport 81 drop; }; }")
	for _, f := range families {
		p := traffic.Probe{From: w.client, To: netip.AddrPortFrom(f.server, 81), Proto: "udp", Fences: []netip.Addr{f.server}}
		if a := p.Do(Within(t)); a.Outcome != traffic.Silence {
			t.Fatal(a)
		}
		echoes := func() []Flow {
			flows, err := ct.Flows(Within(t), func(x Flow) bool {
				return strings.HasPrefix(x.Proto, "icmp") && x.Orig.Dst.Addr() == f.server
			})
			Must(t, err)
			return flows
		}
		for _, flow := range echoes() {
			Must(t, ct.Delete(flow))
		}
		if left := echoes(); len(left) > 0 {
			t.Errorf("%s: left: %v", f.name, left)
		}
	}
}

func TestEvents(t *testing.T) {
	w, ct := newTracked(t)
	ctx, cancel := context.WithCancel(Within(t))
	events, err := ct.Events(ctx)
	Must(t, err)
	for _, f := range families {
		c, a := open(t, w, "tcp", f.vip)
		c.Close()
		flows, err := ct.Flows(ctx, func(x Flow) bool { return x.Orig.Src == a.Source })
		Must(t, err)
		for _, flow := range flows {
			Must(t, ct.Delete(flow))
		}
		// Of the updates the kernel may merge some; the end of a connection by RST is the state CLOSE.
		seen := []string{}
		for e := range events {
			if e.Flow.Orig.Src != a.Source {
				continue
			}
			seen = append(seen, fmt.Sprint(e.Change, " ", e.Flow.TCPState))
			if e.Change == FlowGone {
				break
			}
		}
		if len(seen) < 3 || seen[0] != "new SYN_SENT" || seen[len(seen)-2] != "update CLOSE" {
			t.Errorf("%s: %q", f.name, seen)
		}
	}
	cancel()
	for range events { // is closed
	}
}

// A slow reader gets FlowsLost, and later events.
func TestEventsLost(t *testing.T) {
	w, ct := newTracked(t)
	ctx, cancel := context.WithCancel(Within(t))
	defer cancel()
	l, err := ct.listen()
	Must(t, err)
	Must(t, l.conn.SetReadBuffer(1)) // the kernel takes its minimum, room for a message or two
	out := make(chan FlowEvent)      // without a reader
	lost := make(chan bool, 1)
	go func() { lost <- l.forward(ctx, out) }()
	f := families[0]
	for {
		select {
		case failed := <-lost:
			if !failed {
				t.Error("the reader ended without an error")
			}
			l.close()
			return
		case <-out: // take one now and then: an error is found only by reading
		default:
			traffic.Probe{From: w.client, To: f.vip, Proto: "tcp"}.Do(ctx)
		}
		if ctx.Err() != nil {
			t.Fatal("nothing was lost")
		}
	}
}
