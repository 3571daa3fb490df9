package traffic

import (
	"context"
	"net/netip"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFenceIsNotOvertaken sends probes over an allowed path while both the CPUs and the path are busy, with a fence that
// is much nearer than the target. No silence may be declared, and the echoes that were needed are counted.
func TestFenceIsNotOvertaken(t *testing.T) {
	w := newWorld(t)
	for _, f := range families {
		serve(t, w.server, "web", []netip.Addr{f.server}, bothPorts...)
	}
	load(t, w)
	const workers, each = 4, 100
	eachFamilyAndProto(t, func(t *testing.T, f family, proto string) {
		ctx := within(t)
		p := Probe{From: w.client, To: netip.AddrPortFrom(f.server, 80), Proto: proto, Fences: []netip.Addr{f.gateway}}
		var mu sync.Mutex
		needed := map[int]int{}
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				for range each {
					c, err := p.prepare()
					if err != nil {
						t.Error(err)
						return
					}
					a := c.Exchange(ctx)
					if a.Outcome != Reply {
						t.Error(a)
					}
					mu.Lock()
					needed[c.echoes]++
					mu.Unlock()
					c.Close()
				}
			})
		}
		wg.Wait()
		t.Logf("probes by the number of echoes before the answer: %v", needed)
	})
}

// load keeps every CPU busy with computing, and with packets over the same path as the probes', until the test ends.
func load(t *testing.T, w *world) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range runtime.NumCPU() {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
			}
		})
		wg.Go(func() { flood(ctx, t, w) })
	}
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
}

func flood(ctx context.Context, t *testing.T, w *world) {
	fd, err := w.client.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Error(err)
		return
	}
	defer unix.Close(fd)
	to := sockaddr(netip.AddrPortFrom(families[0].server, 9)) // closed: an ICMP error comes back for each
	for ctx.Err() == nil {
		unix.Sendto(fd, make([]byte, 100), 0, to)
	}
}
