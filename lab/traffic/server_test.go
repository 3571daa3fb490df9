// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	. "github.com/viplab/viplab/internal/lab/nstest"
	"github.com/viplab/viplab/lab/netns"
)

func ipCommand(f family, command string) *exec.Cmd {
	version := "-4"
	if f.server.Is6() {
		version = "-6"
	}
	return exec.Command("ip", append([]string{version}, strings.Fields(command)...)...)
}

// The protocol as one types it: several requests at once, a payload, and the end of the client's half before the
// answer.
func TestByHand(t *testing.T) {
	w := newWorld(t)
	s := serve(t, w.server, "web", nil, bothPorts...)
	c, err := w.client.Dial(context.Background(), "tcp", netip.AddrPort{}, netip.AddrPortFrom(families[0].server, 80))
	Must(t, err)
	defer c.Close()
	fmt.Fprintf(c, "one\ntwo 5\n12345three")
	fmt.Fprintf(c, "\n")
	Must(t, c.(*net.TCPConn).CloseWrite())
	in := bufio.NewReader(c)
	for i, want := range []string{"one", "two", "three"} {
		line, err := in.ReadBytes('\n')
		Must(t, err)
		var g Greeting
		Must(t, json.Unmarshal(line, &g))
		if g.Nonce != want || g.Serial != i+1 || g.Server != "web" {
			t.Errorf("%s", line)
		}
		in.Discard(g.Payload)
	}
	if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
		t.Errorf("the end: %q, %v", rest, err)
	}
	if n := len(s.Arrivals()); n != 4 { // an accept and three requests
		t.Errorf("%d entries: %v", n, s.Arrivals())
	} else if last := s.LastArrival(); last != s.Arrivals()[0].At {
		t.Errorf("the last arrival is at %v: %v", last, s.Arrivals())
	}
}

func TestServerRefusesNonsense(t *testing.T) {
	w := newWorld(t)
	serve(t, w.server, "web", nil, bothPorts...)
	for _, nonsense := range []string{"x -1\n", "x y\n", strings.Repeat("x", 2*maxLine)} {
		c, err := w.client.Dial(context.Background(), "tcp", netip.AddrPort{}, netip.AddrPortFrom(families[0].server, 80))
		Must(t, err)
		fmt.Fprint(c, nonsense)
		if answer, _ := io.ReadAll(c); len(answer) > 0 {
			t.Errorf("%.20q was answered with %q", nonsense, answer)
		}
		c.Close()
	}
	if _, err := Serve(w.server, "again", nil, bothPorts...); err == nil {
		t.Error("two servers on one port")
	}
	if _, err := Serve(w.server, "lost", []netip.Addr{addr("10.9.9.9")}, Port{"tcp", 99}); err == nil {
		t.Error("a server at an address that is not there")
	}
}

// The connections of a server that stops end with RST: a FIN would leave them in the namespace for a minute.
func TestAStoppedServerResets(t *testing.T) {
	w := newWorld(t)
	s := serve(t, w.server, "web", nil, bothPorts...)
	c, err := w.client.Dial(t.Context(), "tcp", netip.AddrPort{}, netip.AddrPortFrom(families[0].server, 80))
	Must(t, err)
	defer c.Close()
	fmt.Fprintln(c, "one")
	in := bufio.NewReader(c)
	_, err = in.ReadBytes('\n')
	Must(t, err)
	Must(t, s.Close())
	if _, err := in.ReadByte(); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the client reads %v, not a reset", err)
	}
}

// A restart finds its ports free, whatever its connections were doing.
func TestRestart(t *testing.T) {
	w := newWorld(t)
	f := families[0]
	for range 3 {
		s := serve(t, w.server, "web", []netip.Addr{f.server}, bothPorts...)
		c, a := Probe{From: w.client, To: netip.AddrPortFrom(f.server, 80), Proto: "tcp"}.Open(Within(t))
		if a.Outcome != Reply {
			t.Fatal(a)
		}
		Must(t, s.Close())
		Must(t, s.Close())
		c.Close()
	}
	servers.mu.Lock()
	defer servers.mu.Unlock()
	if servers.file != nil || len(servers.members) > 0 || len(servers.tickets) > 0 {
		t.Errorf("left behind: %d sockets, %d tickets", len(servers.members), len(servers.tickets))
	}
}

func TestManyServers(t *testing.T) {
	const count = 300
	namespaces := make([]*netns.NS, count)
	for i := range namespaces {
		namespaces[i] = NewNS(t, fmt.Sprintf("pod%d", i))
		Up(t, namespaces[i], "lo")
		serve(t, namespaces[i], fmt.Sprintf("pod%d", i), nil, bothPorts...)
	}
	before := threads(t)
	var wg sync.WaitGroup
	for _, ns := range namespaces {
		wg.Go(func() {
			for _, proto := range []string{"tcp", "udp"} {
				a := Probe{From: ns, To: netip.MustParseAddrPort("127.0.0.1:81"), Proto: proto}.Do(Within(t))
				if a.Outcome != Reply || a.Server != ns.Name() {
					t.Errorf("%s: %v", ns.Name(), a)
				}
			}
		})
	}
	wg.Wait()
	if n := threads(t) - before; n > 50 {
		t.Errorf("%d more threads for %d servers", n, count)
	}
}

func threads(t *testing.T) int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	Must(t, err)
	return len(tasks)
}
